"""Kernels that people put to a run are in its trace, and its replay takes them in where the run did."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from by_files import ByFiles, by_files
from rich.console import Console
from small_search import MACHINE, SOURCE, run_part, small_config, snapshot, write_table

from evo.added_kernels import KERNEL_ADDED, AddedKernel, add_kernel
from evo.config import Config
from evo.console import RunConsole
from evo.result import read_result
from evo.run import run_search
from evo.trace.replay import Replayed, replay
from evo.trace.restore import restore_runs
from evo.trace.story import story
from evo.trace.trace import read_trace
from evo.trace.trace_file import write_trace
from fitness.manifest import with_knobs
from population.archive import open_archive
from population.archive_reader import read_archive
from population.atomic_file import strict_json
from population.individual import individual_id
from population.records import EventRecord
from population.run_folder import RunFolder, create_run_folder

ROOT = individual_id(SOURCE)
FIRST = AddedKernel(source=with_knobs(SOURCE, {"STAGES": 3, "WIDTH": 2, "BLOCK_M": 64}), parent_ids=(ROOT,))
SECOND = AddedKernel(source=with_knobs(SOURCE, {"STAGES": 2, "WIDTH": 4, "BLOCK_M": 16}), parent_ids=(FIRST.id, ROOT))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "table.jsonl.xz")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def config(table: Path, generations: int | None, evaluations: int | None = None) -> Config:
    made = small_config(generations=generations, evaluations=evaluations)
    return replace(made, backend=replace(made.backend, table=str(table)))


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def lines_of(folder: RunFolder) -> list[dict[str, Any]]:
    with read_archive(folder) as archive:
        return [dict(line) for line in story(folder, archive)]


def replayed(folder: RunFolder, root: Path) -> Replayed:
    """The replay of a run's trace, which is all that it has: the run's own files are out of the way meanwhile."""
    write_trace(root / "trace.jsonl.xz", lines_of(folder))
    hidden = folder.path.rename(root / "hidden")
    try:
        return replay(
            read_trace(root / "trace.jsonl.xz"), root / "runs", "replay", RunConsole(console=quiet(), budget=None)
        )
    finally:
        hidden.rename(folder.path)


def assert_same(folder: RunFolder, again: Replayed) -> None:
    assert again.differing == ()
    assert read_result(again.folder) == read_result(folder)
    found, wanted = snapshot(again.folder), snapshot(folder)
    for seen in (found, wanted):
        if seen["checkpoint"]:
            del seen["checkpoint"]["settings_fingerprint"], seen["checkpoint"]["counters"]["elapsed_ms"]
    assert found == wanted


def by_hand(folder: RunFolder) -> list[tuple[str, int, tuple[str, ...]]]:
    with read_archive(folder) as archive:
        return [(each.id, each.birth, each.parent_ids) for each in archive.births() if each.operator == "hand"]


def test_a_run_in_parts_with_kernels_between_them(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    run_search(config(table, 1), MACHINE, folder, quiet())
    add_kernel(folder, FIRST)
    run_search(config(table, 2), MACHINE, folder, quiet())
    add_kernel(folder, SECOND)
    add_kernel(folder, AddedKernel(source=SOURCE))  # nothing new, which the trace tells too
    run_search(config(table, 4), MACHINE, folder, quiet())
    assert by_hand(folder) == [(FIRST.id, -2, (ROOT,)), (SECOND.id, -3, (FIRST.id, ROOT))]
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert again.result["generations"] == 4
    assert {FIRST.id, SECOND.id} <= {name for name, _ in snapshot(again.folder)["evaluations"]}


def test_a_budget_that_ends_with_the_kernel(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    add_kernel(folder, FIRST)
    run_search(config(table, None, evaluations=2), MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert [name for name, _ in snapshot(again.folder)["evaluations"]] == [ROOT, FIRST.id]


def waiting_for_replies(run: ByFiles) -> None:
    run.whole_run(1)
    add_kernel(run.folder, FIRST)
    run.ask("n=3")
    run.evaluate()
    run.answer("0004.md")
    run.tell()


def went_on_without_some(run: ByFiles) -> None:
    run.whole_run(1)
    add_kernel(run.folder, FIRST)
    run.ask("n=3")
    run.answer("0003.md", "0005.md")
    run.tell("partial=true")


def whole(run: ByFiles) -> None:
    went_on_without_some(run)
    run.evaluate()
    run.tell()
    add_kernel(run.folder, SECOND)
    run.generation("n=2")


@pytest.mark.parametrize("work", [waiting_for_replies, went_on_without_some, whole])
def test_a_run_by_files(tmp_path: Path, work: Callable[[ByFiles], None]) -> None:
    run = by_files(tmp_path)
    work(run)
    assert by_hand(run.folder)[0] == (FIRST.id, -2, (ROOT,))
    assert_same(run.folder, replayed(run.folder, tmp_path))


def test_the_trace_tells_of_it_before_the_question_that_was_next(tmp_path: Path, folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    add_kernel(folder, FIRST)
    run_part(small_config(generations=2), folder)
    lines = lines_of(folder)
    place = next(place for place, line in enumerate(lines) if line.get("event") == KERNEL_ADDED)
    assert lines[place]["record"] == {
        "number": 4,
        "generation": 2,
        "birth": -2,
        "parents": [ROOT],
        "source": FIRST.source,
    }
    candidate, evaluation, question = lines[place + 1 : place + 4]
    assert (candidate["kind"], candidate["id"], candidate["operator"]) == ("candidate", FIRST.id, "hand")
    assert (candidate["birth"], candidate["parent_ids"], candidate["question_id"]) == (-2, [ROOT], None)
    assert (evaluation["kind"], evaluation["id"]) == ("evaluation", FIRST.id)
    assert (question["kind"], question["number"]) == ("question", 4)
    write_trace(tmp_path / "t.jsonl", lines)
    assert read_trace(tmp_path / "t.jsonl").seeds == [SOURCE]
    [restored] = restore_runs(tmp_path / "t.jsonl", tmp_path / "restored")
    assert lines_of(restored) == [line for line in lines if line["kind"] not in ("checkpoint", "result")]


def test_one_whose_generation_has_asked_nothing_yet_is_told_at_the_end(tmp_path: Path, folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    record = {"number": 4, "generation": 2, "birth": -2, "parents": [ROOT], "source": FIRST.source}
    with open_archive(folder) as archive:
        archive.record_event(EventRecord(kind=KERNEL_ADDED, key="killed-here", record=strict_json(record)))
        individual = archive.individual(ROOT)
        archive.record_individual(
            replace(
                individual,
                id=FIRST.id,
                source=FIRST.source,
                birth=-2,
                generation=2,
                operator="hand",
                parent_ids=(ROOT,),
            )
        )
    kinds = [line["kind"] for line in lines_of(folder)]
    assert kinds[-3:] == ["event", "candidate", "checkpoint"]
    write_trace(tmp_path / "t.jsonl", lines_of(folder))
    trace = read_trace(tmp_path / "t.jsonl")
    assert (trace.generations, trace.last_generation, trace.last_question) == (1, 1, 3)
