"""A run that looks its figures up may go on on any machine: the device that counts is the table's."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_search import MACHINE, every_kernel, judge_knobs, small_config, small_settled, snapshot

from evo.config import Config
from evo.run import Outcome, run_search
from evo.run_settings import fixed_settings, recorded_settings, require_same_settings
from fitness.backends.recorded import export_table
from fitness.faults import EnvironmentFault
from population.archive import create_archive
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder

ELSEWHERE = replace(MACHINE, processor="another processor")


def table_of(path: Path, **environment: str) -> Config:
    """A search's configuration on a table that was measured on a device of a name."""
    evaluations = [judge_knobs(kernel) for kernel in every_kernel()]
    export_table([replace(each, environment=replace(each.environment, **environment)) for each in evaluations], path)
    config = small_config()
    return replace(config, backend=replace(config.backend, table=str(path)))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return table_of(tmp_path / "table.jsonl", device="a GPU far away")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def go(config: Config, folder: RunFolder, generations: int, machine: Any = MACHINE) -> Outcome:
    config = replace(config, stop=replace(config.stop, generations=generations))
    return run_search(config, machine, folder, Console(file=io.StringIO(), width=200))


def timeless(folder: RunFolder) -> dict[str, Any]:
    seen = snapshot(folder)
    del seen["checkpoint"]["counters"]["elapsed_ms"]
    return seen


def test_a_run_goes_on_on_another_machine_as_it_would_have_here(
    tmp_path: Path, config: Config, folder: RunFolder
) -> None:
    whole = create_run_folder(tmp_path, "whole")
    go(config, whole, 2)
    go(config, folder, 1)
    assert go(config, folder, 2, ELSEWHERE).exit_code == 0
    assert timeless(folder) == timeless(whole)


def test_settings_and_prompts_name_the_tables_device(config: Config, folder: RunFolder) -> None:
    go(config, folder, 1)
    with read_archive(folder) as archive:
        assert recorded_settings(archive)["device"] == "a GPU far away"
        assert all("Measured on a GPU far away beside" in prompt.text for prompt in archive.prompts())


def test_a_run_that_began_under_the_processors_name_keeps_it(config: Config, folder: RunFolder) -> None:
    """So it was written down by earlier versions."""
    with create_archive(folder) as archive:
        require_same_settings(archive, fixed_settings(config, small_settled(config)))
    go(config, folder, 1)
    assert go(config, folder, 2, ELSEWHERE).exit_code == 0
    with read_archive(folder) as archive:
        assert recorded_settings(archive)["device"] == "test device"


def test_a_table_of_another_device_is_refused_in_the_midst_of_a_run(
    tmp_path: Path, config: Config, folder: RunFolder
) -> None:
    go(config, folder, 1)
    other = table_of(tmp_path / "other.jsonl", device="a newer GPU")
    with pytest.raises(EnvironmentFault) as error:
        go(other, folder, 2)
    assert str(error.value) == (
        f"backend.table: {tmp_path / 'other.jsonl'}: the run began with another table: device was a GPU far away, now "
        "a newer GPU; name that one, or start a new run"
    )
    go(config, folder, 2)
