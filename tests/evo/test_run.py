"""One run from its configuration to its result.json, on a table of measurements."""

import io
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_records import failed
from small_search import MACHINE, SOURCE, small_config, snapshot, write_table

from evo.config import Config, StopConfig
from evo.run import Outcome, run_search
from evo.settings import ConfigError
from fitness.backends.recorded import export_table
from fitness.evaluation import Status
from fitness.faults import EnvironmentFault
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder

KEYS = {
    "schema", "backend", "device", "baseline", "suite", "style", "answerer", "rng_seed", "generations", "evaluations",
    "stop_reason", "seed", "best", "history", "spend",
}  # fmt: skip


class Signalling(Console):
    """A console that raises a signal once so many evaluations were told of."""

    def __init__(self, number: signal.Signals | None = None, after: int = 0) -> None:
        self.said = io.StringIO()
        super().__init__(file=self.said, width=200)
        self._number, self._left = number, after

    def print(self, *things: Any, **how: Any) -> None:
        super().print(*things, **how)
        said = str(things[0])
        if self._number is not None and (" → k" in said or ": seed k" in said):  # the last line on an evaluation
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(self._number)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "table.jsonl.xz")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def recorded(table: Path, **stop: Any) -> Config:
    config = small_config(**stop)
    return replace(config, backend=replace(config.backend, table=str(table)))


def go(config: Config, folder: RunFolder, console: Console | None = None) -> Outcome:
    return run_search(config, MACHINE, folder, console or Signalling())


def result_in(folder: RunFolder) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(folder.result.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return result


def timeless(seen: dict[str, Any]) -> dict[str, Any]:
    counters = {name: count for name, count in seen["checkpoint"]["counters"].items() if name != "elapsed_ms"}
    return seen | {"checkpoint": seen["checkpoint"] | {"counters": counters}}


def test_a_run_ends_with_a_result_that_agrees_with_its_archive(table: Path, folder: RunFolder) -> None:
    outcome = go(recorded(table, generations=2), folder)
    result = result_in(folder)
    assert outcome.exit_code == 0
    assert outcome.result == result
    assert set(result) >= KEYS
    assert (result["suite"], result["style"], result["answerer"], result["rng_seed"]) == (
        "tiny", "question", "offline", 0,
    )  # fmt: skip
    assert (result["backend"], result["device"]) == ("recorded", "test device")
    assert (result["generations"], result["stop_reason"]) == (2, "generation budget reached: 2 of 2")
    with read_archive(folder) as archive:
        geomeans = [score.geomean or 0.0 for score in archive.scores()]
        names = [score.individual_id for score in archive.scores()]
    assert result["evaluations"] == len(geomeans) == len(set(names))
    assert result["history"] == [max(geomeans[: place + 1]) for place in range(len(geomeans))]
    assert result["best"]["geomean"] == max(geomeans)
    assert names[geomeans.index(max(geomeans))] == result["best"]["id"]
    assert result["seed"] == {"id": names[0], "geomean": geomeans[0]}
    assert (folder.kernels / f"{result['best']['id']}.cu").is_file()


def test_its_words_agree_with_its_result(table: Path, folder: RunFolder) -> None:
    console = Signalling()
    go(recorded(table, generations=1), folder, console)
    result, said = result_in(folder), console.said.getvalue()
    assert f"best {result['best']['id']}: {result['best']['geomean']:.4f} × sdpa" in said
    assert f"stopped: {result['stop_reason']}" in said
    assert "backend   recorded" in said
    assert "go on with" not in said


@pytest.mark.parametrize(("number", "after"), [(signal.SIGINT, 1), (signal.SIGTERM, 7), (signal.SIGUSR1, 2)])
def test_a_signal_ends_it_in_order_and_it_can_be_resumed(
    table: Path, tmp_path: Path, folder: RunFolder, number: signal.Signals, after: int
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    console = Signalling(number, after)
    outcome = go(recorded(table), folder, console)
    assert outcome.exit_code == 128 + number
    result = result_in(folder)
    assert result["stop_reason"] == f"interrupted by {number.name}"
    assert result["evaluations"] == len(result["history"]) == after
    assert f"nothing is lost; go on with: evo evolve resume={folder.path}" in console.said.getvalue()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == handlers
    assert go(recorded(table), folder).exit_code == 0
    whole = create_run_folder(tmp_path, "whole")
    go(recorded(table), whole)
    assert timeless(snapshot(folder)) == timeless(snapshot(whole))
    assert result_in(folder) == result_in(whole)


def test_a_finished_run_that_is_resumed_says_the_same_again(table: Path, folder: RunFolder) -> None:
    go(recorded(table, generations=2), folder)
    before, console = result_in(folder), Signalling()
    assert go(recorded(table, generations=2), folder, console).exit_code == 0
    assert result_in(folder) == before
    assert "resumed after generation 2, with" in console.said.getvalue()


@pytest.mark.parametrize("budget", [1, 2, 6])
def test_the_evaluations_are_never_more_than_the_budget(table: Path, folder: RunFolder, budget: int) -> None:
    config = recorded(table, generations=None, evaluations=budget)
    for _ in range(2):
        outcome = go(config, folder)
        assert outcome.result["evaluations"] == budget
        assert outcome.result["stop_reason"] == f"evaluation budget reached: {budget} of {budget}"


def test_the_search_stops_at_its_goal(table: Path, folder: RunFolder) -> None:
    outcome = go(recorded(table, generations=None, target_geomean=0.95), folder)
    assert outcome.result["stop_reason"].startswith("target geomean reached: ")
    assert outcome.result["best"]["geomean"] >= 0.95


def test_nothing_passed(tmp_path: Path, folder: RunFolder) -> None:
    table = tmp_path / "table.jsonl"
    export_table([failed(SOURCE, Status.INCORRECT, "wrong by 1")], table)
    outcome = go(recorded(table), folder)
    assert outcome.exit_code == 1
    assert outcome.result["best"] is None
    assert outcome.result["stop_reason"].endswith("(INCORRECT: wrong by 1)")
    assert go(recorded(table), folder).exit_code == 1  # and again


def test_a_table_of_another_suite_is_refused(tmp_path: Path, folder: RunFolder) -> None:
    table = write_table(tmp_path / "table.jsonl", suite="core26")
    with pytest.raises(EnvironmentFault, match="measured on the suite core26, not on tiny"):
        go(recorded(table), folder)


def test_other_settings_are_refused_before_anything_is_judged(table: Path, folder: RunFolder) -> None:
    go(recorded(table, generations=1), folder)
    before = snapshot(folder)
    with pytest.raises(ConfigError, match="rng_seed was 0, now 1"):
        go(replace(recorded(table), rng_seed=1), folder)
    assert snapshot(folder) == before


def test_more_of_a_free_setting_is_a_longer_run(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    go(recorded(table, generations=1), folder)
    go(replace(recorded(table), stop=StopConfig(generations=3), runs="elsewhere"), folder)
    whole = create_run_folder(tmp_path, "whole")
    go(recorded(table, generations=3), whole)
    assert result_in(folder) == result_in(whole)


def test_a_kernels_file_that_was_altered_is_told_of_on_resume(table: Path, folder: RunFolder) -> None:
    go(recorded(table, generations=1), folder)
    first, second, *_ = sorted(folder.kernels.iterdir())
    first.write_text("altered", encoding="utf-8")
    os.utime(first, (written := first.stat().st_mtime + 1, written))  # as a person would, later
    second.unlink()
    console = Signalling()
    go(recorded(table, generations=1), folder, console)
    assert f"{first} was altered since it was recorded" in console.said.getvalue()
    assert f"{second} is missing; the archive still holds the source" in console.said.getvalue()
