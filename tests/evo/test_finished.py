"""A run that has used up what it was given, and is gone on with."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import by_files
from rich.console import Console
from small_search import MACHINE, small_config, snapshot, write_table

from evo.config import Config, StopConfig
from evo.finished import nothing_left
from evo.run import run_search
from evo.settings import ConfigError
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "table.jsonl.xz")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def recorded(table: Path, stop: StopConfig) -> Config:
    config = small_config()
    return replace(config, stop=stop, backend=replace(config.backend, table=str(table)))


def said_by(config: Config, folder: RunFolder) -> str:
    said = io.StringIO()
    assert run_search(config, MACHINE, folder, Console(file=said, width=200)).exit_code == 0
    return said.getvalue()


def told(said: str) -> list[int]:
    """The numbers of the evaluations that a part of a run told of."""
    return [int(line.split(",")[0].split(":")[0].split()[1]) for line in said.splitlines() if line.startswith("eval")]


@pytest.mark.parametrize(
    ("stop", "less", "refusal"),
    [
        (StopConfig(evaluations=7), StopConfig(evaluations=4), "stop.evaluations=4: this run has made 7 evaluations"),
        (StopConfig(generations=2), StopConfig(generations=1), "stop.generations=1: this run has made 2 generations"),
    ],
)
def test_a_budget_below_what_was_made_is_refused_and_nothing_is_lost(
    table: Path, folder: RunFolder, stop: StopConfig, less: StopConfig, refusal: str
) -> None:
    said_by(recorded(table, stop), folder)
    before, result = snapshot(folder), folder.result.read_bytes()
    with pytest.raises(ConfigError, match=rf"^{refusal} already, .* give more than \d+, or \d+ to end it"):
        said_by(recorded(table, less), folder)
    assert (snapshot(folder), folder.result.read_bytes()) == (before, result)
    assert "nothing was left to do" in said_by(recorded(table, stop), folder)


def test_a_finished_run_says_so_and_how_it_goes_on_and_tells_of_no_evaluation_again(
    table: Path, folder: RunFolder
) -> None:
    stop = StopConfig(evaluations=7)  # which ends its second generation in the middle
    assert told(said_by(recorded(table, stop), folder)) == [1, 2, 3, 4, 5, 6, 7]
    again = said_by(recorded(table, stop), folder)
    assert told(again) == []
    assert "resumed after generation 1, with 7 evaluations made" in again
    assert (
        "this run was finished before, and nothing was left to do; to go on with it: "
        f"evo evolve resume={folder.path} stop.evaluations=N, with N above 7"
    ) in again
    longer = said_by(recorded(table, StopConfig(evaluations=9)), folder)
    assert told(longer) == [8, 9]
    assert "this run was finished" not in longer


def test_a_search_without_a_limit_to_raise_is_said_to_be_finished_alone() -> None:
    said = nothing_left("every question of the single shot was put once", StopConfig(), "runs/a")
    assert said == "this run was finished before, and nothing was left to do"


def test_asking_by_files_for_less_than_was_made_is_refused(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.whole_run(1)
    refused = run.ask("stop.evaluations=1")
    assert refused.code == 2
    assert "stop.evaluations=1: this run has made 4 evaluations already" in refused.errors
    assert "the search is over: evaluation budget reached: 4 of 4" in run.ask("stop.evaluations=4").out
