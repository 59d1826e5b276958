"""A trace laid out as a run's folder again tells the same story."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from small_search import MACHINE, small_config, write_table

from evo.run import run_search
from evo.trace.restore import restore_runs
from evo.trace.story import story
from evo.trace.trace_file import TraceError, write_trace
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder

NOT_KEPT = ("checkpoint", "result")


def told(folder: RunFolder) -> list[dict[str, object]]:
    with read_archive(folder) as archive:
        return [dict(line) for line in story(folder, archive)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    root = tmp_path_factory.mktemp("made")
    config = small_config(generations=2)
    config = replace(config, backend=replace(config.backend, table=str(write_table(root / "table.jsonl.xz"))))
    folder = create_run_folder(root / "runs", "one")
    run_search(config, MACHINE, folder, Console(file=io.StringIO()))
    return folder


def test_the_folder_tells_what_the_trace_told(run: RunFolder, tmp_path: Path) -> None:
    lines = told(run)
    write_trace(tmp_path / "t.jsonl.xz", lines)
    [restored] = restore_runs(tmp_path / "t.jsonl.xz", tmp_path / "restored")
    assert restored.name == "one"
    assert told(restored) == [line for line in lines if line["kind"] not in NOT_KEPT]


def test_of_two_runs_with_one_name_the_second_gets_another(run: RunFolder, tmp_path: Path) -> None:
    write_trace(tmp_path / "t.jsonl", told(run))
    twice = tmp_path / "twice.jsonl"
    twice.write_bytes((tmp_path / "t.jsonl").read_bytes() * 2)
    assert [each.name for each in restore_runs(twice, tmp_path / "restored")] == ["one", "one-2"]


def test_what_no_archive_takes_is_refused_by_its_line(run: RunFolder, tmp_path: Path) -> None:
    lines = told(run)
    place = next(i for i, line in enumerate(lines) if line["kind"] == "candidate")
    lines[place] = {**lines[place], "id": "k000000000000"}
    write_trace(tmp_path / "t.jsonl", lines)
    with pytest.raises(TraceError, match=rf"t\.jsonl, line {place + 1}: no archive takes it"):
        restore_runs(tmp_path / "t.jsonl", tmp_path / "restored")
