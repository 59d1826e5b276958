"""What `evo evaluate` leaves of a sitting: its parents' figures, and which children were measured beside them."""

import hashlib
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import ByFiles, by_files, copied, judge, names
from small_sittings import (
    PARENT,
    PARENT_ID,
    WRONG,
    Sitter,
    again_files,
    begin_shot,
    children,
    measured_at,
    sit,
    sittings,
)

from evo.measuring import find_work
from evo.pending import publish, read_job
from evo.sittings import Sitting, new_sitting, read_sittings
from fitness.faults import EnvironmentFault
from population.atomic_file import strict_json
from population.individual import individual_id
from population.run_folder import RunFolder


@pytest.fixture(scope="module")
def once_told(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    run = begin_shot(tmp_path_factory.mktemp("sittings"))
    said = run.tell()
    assert f" in {run.folder.pending}, beside 1 parent to be measured again: evo evaluate" in said.out
    return run


@pytest.fixture
def told(once_told: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_told, tmp_path)


def before(count: int, act: Callable[[], None]) -> Callable[[int], None]:
    return lambda done: act() if done == count else None


def end() -> None:
    signal.raise_signal(signal.SIGTERM)


def file_checksum(run: ByFiles, name: str) -> str:
    """Of what stands in a child's file, as anyone can make it."""
    text = (run.folder.measured / f"{name}.json").read_text(encoding="utf-8").strip()
    return hashlib.sha256(text.encode()).hexdigest()


def test_children_are_published_with_their_parents(told: ByFiles) -> None:
    assert read_job(told.folder.pending).again == (PARENT_ID,)
    assert len(children(told)) >= 3
    assert individual_id((told.folder.pending / f"{PARENT_ID}.cu").read_bytes().decode("utf-8")) == PARENT_ID
    assert individual_id(WRONG) not in children(told)


def test_seeds_are_measured_without_a_sittings_file(told: ByFiles) -> None:
    """They wait before there is a population, so a job says nothing of parents."""
    assert not (told.folder.measured / "again").exists()


def test_a_job_says_which_are_measured_again_or_nothing(told: ByFiles, tmp_path: Path) -> None:
    job = read_job(told.folder.pending)
    publish(tmp_path / "pending", job, [])
    assert read_job(tmp_path / "pending") == job
    publish(tmp_path / "pending", replace(job, again=()), [])
    record = json.loads((tmp_path / "pending" / "job.json").read_text(encoding="utf-8"))
    assert (record["schema"], "again" in record) == (1, False)
    assert read_job(tmp_path / "pending") == replace(job, again=())


@pytest.mark.parametrize("again", ['"k0"', '["../x"]', "[1]", "null"])
def test_a_job_with_other_words_for_them_gets_one_line(told: ByFiles, again: str) -> None:
    path = told.folder.pending / "job.json"
    record = json.loads(path.read_text(encoding="utf-8")) | {"again": json.loads(again)}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(EnvironmentFault, match="again: expected a list of candidates' ids"):
        find_work(told.folder, [])


def test_parents_are_measured_first_and_kept_with_the_sittings_children(told: ByFiles) -> None:
    first = (told.folder.measured / f"{PARENT_ID}.json").read_bytes()
    sitter = Sitter(1.12)
    done, heard = sit(told.folder, sitter)
    assert sitter.judged == [PARENT_ID, *children(told)]
    assert (heard, list(done.again)) == ([PARENT_ID], [PARENT_ID])
    assert sorted(done.evaluations) == children(told)
    [sitting] = sittings(told)
    assert sitting.parents == {PARENT_ID: measured_at(PARENT, 1.12)}
    assert sitting.children == {name: file_checksum(told, name) for name in children(told)}
    assert (told.folder.measured / f"{PARENT_ID}.json").read_bytes() == first
    assert find_work(told.folder, []).is_done


def test_where_the_first_sitting_is_not_known_they_are_no_candidates(told: ByFiles, tmp_path: Path) -> None:
    elsewhere = RunFolder(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    told.folder.pending.rename(elsewhere.pending)
    sit(elsewhere, Sitter(1.12))
    assert f"{PARENT_ID}.json" not in names(elsewhere.measured)
    assert len(names(elsewhere.measured / "again")) == 1


def test_each_sitting_has_a_file_of_its_own(told: ByFiles) -> None:
    done, _ = sit(told.folder, Sitter(1.11, before(2, end)))
    assert (done.interruption is not None, len(done.evaluations), len(done.again)) == (True, 1, 1)
    rest = [name for name in children(told) if name not in done.evaluations]
    sitter = Sitter(1.12)
    sit(told.folder, sitter)
    assert sitter.judged == [PARENT_ID, *rest]
    first, second = sittings(told)
    assert first.parents == {PARENT_ID: measured_at(PARENT, 1.11)}
    assert second.parents == {PARENT_ID: measured_at(PARENT, 1.12)}
    assert (list(first.children), sorted(second.children)) == (list(done.evaluations), rest)


def test_one_that_is_cut_off_before_any_child_leaves_nothing(told: ByFiles) -> None:
    done, _ = sit(told.folder, Sitter(1.11, before(1, end)))
    assert (list(done.again), dict(done.evaluations)) == ([PARENT_ID], {})
    assert not (told.folder.measured / "again").exists()


def test_a_child_is_in_its_sittings_file_before_it_has_one_of_its_own(told: ByFiles) -> None:
    """So that a crash between the two loses the child, which is measured anew, and not its sitting."""
    sitter = Sitter(1.12)
    blocked = told.folder.measured / f"{children(told)[0]}.json"
    blocked.mkdir()
    with pytest.raises(Exception, match="make room or rights there"):
        sit(told.folder, sitter)
    assert [list(sitting.children) for sitting in sittings(told)] == [[children(told)[0]]]


def test_parents_alone_are_not_measured(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    again_files(told)[0].unlink()
    assert find_work(told.folder, []).is_done
    for name in children(told):
        (told.folder.pending / f"{name}.cu").unlink()
    work = find_work(told.folder, [])
    assert (work.is_done, len(work.notes)) == (True, 1)
    assert f"{told.folder.pending} holds parents (again in job.json) and no candidate; " in work.notes[0]


def test_one_that_did_not_come_with_the_folder_is_named(told: ByFiles) -> None:
    (told.folder.pending / f"{PARENT_ID}.cu").unlink()
    work = find_work(told.folder, [])
    assert (list(work.again), sorted(work.sources)) == ([], children(told))
    assert [note.split("; ")[0] for note in work.notes] == [f"{told.folder.pending / PARENT_ID}.cu is not there"]
    (told.folder.pending / f"{PARENT_ID}.cu").write_text("half", encoding="utf-8")
    assert [" is not whole, or was altered: " in note for note in find_work(told.folder, []).notes] == [True]


def test_the_command_says_what_they_are(told: ByFiles) -> None:
    table = told.folder.path / "table.jsonl"
    table.write_bytes(told.table.read_bytes())
    said = told.command("evaluate", "backend=recorded", f"backend.table='{table}'")
    assert (said.code, said.errors) == (0, "")
    assert f"{PARENT_ID} again  {judge(PARENT).geomean:.4f} ×" in said.out
    count = len(children(told)) + 1
    assert f"{count} of {count} measured into {told.folder.measured}" in said.out


def test_a_search_measures_no_parent_again(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.begin()
    run.evaluate()
    run.ask("n=2")
    run.answer()
    run.tell()
    assert read_job(run.folder.pending).again == ()
    assert len(run.evaluate()) > 0
    assert not (run.folder.measured / "again").exists()


def test_a_file_gives_the_equal_sitting_back(tmp_path: Path) -> None:
    file = new_sitting(tmp_path)
    file.add_parent(PARENT_ID, measured_at(PARENT, 1.12))
    child = measured_at(WRONG, 1.10)
    file.add_child("k1", child)
    checksum = hashlib.sha256(strict_json(child.to_json()).encode()).hexdigest()
    expected = Sitting(parents={PARENT_ID: measured_at(PARENT, 1.12)}, children={"k1": checksum})
    assert read_sittings(tmp_path, pytest.fail) == {file.path: expected}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "parents": [], "children": []}'])
def test_a_file_that_is_no_sitting_is_a_note(tmp_path: Path, text: str) -> None:
    path = tmp_path / "again" / "x.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    notes: list[str] = []
    assert read_sittings(tmp_path, notes.append) == {}
    assert [note.startswith(f"{path} is no sitting, or not whole (") for note in notes] == [True]
