"""How runs are listed: their states and figures, beside writers, and whatever lies next to them."""

import io
import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from by_files import by_files
from rich.console import Console
from small_search import MACHINE, small_config, write_table

from evo.cli import run
from evo.config import Config
from evo.console import RunConsole
from evo.run import run_search
from evo.run_list import RunRow, list_runs
from evo.trace.replay import replay
from evo.trace.trace import read_trace
from population.archive import open_archive
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder


def recorded(table: Path, **stop: Any) -> Config:
    config = small_config(**stop)
    return replace(config, backend=replace(config.backend, table=str(table)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of two generations."""
    root = tmp_path_factory.mktemp("made")
    table = write_table(root / "table.jsonl.xz")
    folder = create_run_folder(root / "runs", "done")
    run_search(recorded(table, generations=2), MACHINE, folder, Console(file=io.StringIO()))
    return root / "runs"


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def listed(root: Path) -> dict[str, RunRow]:
    return {row.name: row for row in list_runs(root, now=0.0)}


def quiet() -> RunConsole:
    return RunConsole(console=Console(file=io.StringIO()), budget=None)


def result_of(run: RunFolder) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run.result.read_text(encoding="utf-8"))
    return result


def change_result(run: RunFolder, **fields: Any) -> None:
    run.result.write_text(json.dumps({**result_of(run), **fields}), encoding="utf-8")


def test_a_row_agrees_with_the_result(runs: Path) -> None:
    result = result_of(RunFolder(runs / "done"))
    written = (runs / "done" / "archive.sqlite").stat().st_mtime
    assert list_runs(runs, now=written + 90) == [
        RunRow(
            name="done", state="finished", note="generation budget reached: 2 of 2",
            best_geomean=result["best"]["geomean"], gain=result["best"]["geomean"] / result["seed"]["geomean"],
            evaluations=result["evaluations"], generation=2, age_s=90.0, cost_usd=0, suite="tiny", style="question",
            answerer="offline", backend="recorded",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "state", "note"),
    [
        ({"stop_reason": "interrupted by SIGTERM"}, "interrupted", "interrupted by SIGTERM"),
        ({"stop_reason": "generation 2 is complete", "answerer": "mailbox"}, "waiting", "generation 2 is complete"),
        ({"stop_reason": "interrupted by SIGTERM", "answerer": "mailbox"}, "interrupted", "interrupted by SIGTERM"),
        ({"stop_reason": "the answerer gave up: no key", "answerer": "mailbox"}, "interrupted", "the answerer gave up"),
        ({"stop_reason": "generation 2 is complete", "answerer": None}, "interrupted", "generation 2 is complete"),
        ({"stop_reason": "the answerer gave up: no key"}, "interrupted", "the answerer gave up: no key"),
        ({"stop_reason": "target geomean reached: 2 of 1"}, "finished", "target geomean reached: 2 of 1"),
        ({"generations": 1}, "interrupted", "its result does not tell of all that it has: generation budget"),
        ({"evaluations": 3}, "interrupted", "its result does not tell of all that it has: generation budget"),
        ({"stop_reason": None}, "damaged", "is no result of a run"),
    ],
)
def test_a_run_is_finished_by_a_result_that_tells_of_its_end(
    runs: Path, fields: dict[str, Any], state: str, note: str
) -> None:
    change_result(RunFolder(runs / "done"), **fields)
    row = listed(runs)["done"]
    assert row.state == state
    assert note in row.note
    assert row.evaluations is not None


def test_without_a_result_it_was_interrupted(runs: Path) -> None:
    (runs / "done" / "result.json").unlink()
    assert (listed(runs)["done"].state, listed(runs)["done"].note) == ("interrupted", "it has no result yet")
    shutil.rmtree(runs / "done" / "checkpoints")
    assert listed(runs)["done"].generation is None


def test_a_run_whose_archive_is_held_is_running_and_is_not_disturbed(runs: Path) -> None:
    run = RunFolder(runs / "done")
    with open_archive(run) as archive:
        for _ in range(2):
            row = listed(runs)["done"]
            assert (row.state, row.note) == ("running", f"pid {os.getpid()} on host {socket.gethostname()}")
            assert row.evaluations == archive.evaluation_count()
        with archive.transaction():
            assert listed(runs)["done"].state == "running"
    assert listed(runs)["done"].state == "finished"


def test_a_lock_of_a_dead_writer_is_none(runs: Path) -> None:
    run = RunFolder(runs / "done")
    host = socket.gethostname()
    for holder in (f"pid {os.getpid()} on host {host}", f"pid {2**31} on host {host}", "?"):
        run.lock.write_text(f"{holder}\n", encoding="utf-8")
        before = run.lock.read_bytes()
        assert listed(runs)["done"].state == "finished"
        assert run.lock.read_bytes() == before


def test_a_damaged_run_hides_no_other(runs: Path) -> None:
    archive = (runs / "done" / "archive.sqlite").read_bytes()
    for name, content in (("empty", b""), ("noise", b"x" * 9000), ("torn", archive[: len(archive) // 3])):
        (runs / name).mkdir()
        (runs / name / "archive.sqlite").write_bytes(content)
    (runs / "folder" / "archive.sqlite").mkdir(parents=True)
    (runs / "a.file").write_text("no run", encoding="utf-8")
    rows = listed(runs)
    assert {name: row.state.value for name, row in rows.items()} == {
        "done": "finished", "empty": "damaged", "noise": "damaged", "torn": "damaged",
    }  # fmt: skip
    assert "file is not a database" in rows["noise"].note
    assert rows["noise"].best_geomean is None


def test_sweeps_jobs_are_listed_in_their_order(runs: Path) -> None:
    for job in ("10", "9", "0"):
        shutil.copytree(runs / "done", runs / "swept" / job)
    assert list(listed(runs)) == ["done", "swept/0", "swept/9", "swept/10"]
    assert list(listed(runs / "done")) == ["done"]
    assert list(listed(runs / "swept" / "0" / "kernels")) == []


def test_a_run_by_files_that_waits(tmp_path: Path) -> None:
    waiting = by_files(tmp_path)
    waiting.begin("n=3")
    row = listed(tmp_path)["by-files"]
    assert (row.state, row.note) == ("waiting", "waiting for 1 candidate to be measured")
    assert (row.best_geomean, row.gain, row.evaluations, row.suite) == (None, None, 0, None)


def test_listing_changes_no_file(runs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    listed(runs)
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def evo(*words: str) -> tuple[int, str, str]:
    out, errors = io.StringIO(), io.StringIO()
    code = run(words, Console(file=out, width=40), Console(file=errors, width=40))
    return code, out.getvalue(), errors.getvalue()


def test_the_command_shows_a_line_a_run(runs: Path) -> None:
    (runs / "a\n\x1b[31mred").mkdir()
    (runs / "a\n\x1b[31mred" / "archive.sqlite").write_bytes(b"noise" * 999)
    result = result_of(RunFolder(runs / "done"))
    code, out, _ = evo("runs", str(runs))
    head, red, done = out.splitlines()
    assert code == 0
    assert head.split()[:3] == ["run", "state", "best"]
    assert red.startswith("a  [31mred  damaged")
    assert done.split()[:4] == [
        "done", "finished", f"{result['best']['geomean']:.4f}",
        f"{result['best']['geomean'] / result['seed']['geomean']:.2f}",
    ]  # fmt: skip
    assert done[head.index("backend") :].split()[0] == "recorded"
    assert done.endswith("generation budget reached: 2 of 2")


def test_a_replay_is_shown_as_one(runs: Path, tmp_path: Path) -> None:
    code, _, errors = evo("trace", "export", str(runs / "done"), "--out", str(tmp_path / "done.jsonl"))
    assert (code, errors) == (0, "")
    replay(read_trace(tmp_path / "done.jsonl"), runs, "again", quiet())
    rows = listed(runs)
    assert (rows["again"].replay_of, rows["done"].replay_of) == ("done", None)
    assert rows["again"].best_geomean == rows["done"].best_geomean
    head, again, done = evo("runs", str(runs))[1].splitlines()
    assert again[head.index("backend") :].startswith("replay of done  ")
    assert done[head.index("backend") :].startswith("recorded  ")


def test_a_replay_of_a_replay_is_one_of_the_replay(runs: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("done", "one")):
        trace = tmp_path / f"{number}.jsonl"
        assert evo("trace", "export", str(runs / name), "--out", str(trace))[0] == 0
        replay(read_trace(trace), runs, ("one", "two")[number], quiet())
    assert {name: row.replay_of for name, row in listed(runs).items()} == {"done": None, "one": "done", "two": "one"}


def test_the_command_as_json(runs: Path) -> None:
    code, out, _ = evo("runs", "--json", str(runs))
    [row] = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    with read_archive(RunFolder(runs / "done")) as archive:
        assert row["best_geomean"] == max(score.geomean or 0.0 for score in archive.scores())
    assert (row["name"], row["state"], row["generation"]) == ("done", "finished", 2)
    assert set(row) == set(RunRow.__dataclass_fields__)


def test_the_command_without_runs(tmp_path: Path) -> None:
    assert evo("runs", str(tmp_path))[:2] == (0, f"no run in {tmp_path} or below it\n")
    assert evo("runs", "--json", str(tmp_path))[:2] == (0, "[]\n")
    for words in (["nowhere"], ["a", "b"], ["--all"]):
        code, out, errors = evo("runs", *words)
        assert (code, out, len(errors.splitlines())) == (2, "", 1)
        assert errors.startswith("evo: runs: ")
