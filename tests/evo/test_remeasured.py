"""A single shot's parents are measured once more beside their children, and a gain is told by that."""

import contextlib
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from audited_judge import failed_check
from by_files import ByFiles, by_files, copied, evo, names
from small_records import failed
from small_sittings import (
    PARENT,
    PARENT_ID,
    WRONG,
    Sitter,
    again_files,
    begin_shot,
    children,
    measured_at,
    put_sitting,
    recorded,
    shots,
    sit,
    sittings,
)

from evo.audits import AUDIT_EVENT
from evo.sittings import Sitting
from fitness.audit_record import Audit
from fitness.evaluation import Evaluation, Status
from population.archive import open_archive
from population.atomic_file import strict_json
from population.records import EventRecord
from population.run_folder import RunFolder

CAUTION = "caution: right children whose parents were measured in the same sitting"
EARLIER = 'for the others "faster" is against figures from before the questions, perhaps of another sitting'


@pytest.fixture(scope="module")
def once_told(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    run = begin_shot(tmp_path_factory.mktemp("again"))
    run.tell()
    return run


@pytest.fixture
def told(once_told: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_told, tmp_path)


def compared(run: ByFiles) -> str:
    said = evo("compare", str(run.folder.path))
    assert said.code == 0
    return said.out


def cut_off(run: ByFiles, sitter_speed: float, child: float = 1.10) -> str:
    """A sitting that ends after its first child; which that is."""

    def end_before_the_second(count: int) -> None:
        if count == 2:
            signal.raise_signal(signal.SIGTERM)

    [name] = sit(run.folder, Sitter(sitter_speed, end_before_the_second, child=child))[0].evaluations
    return name


def test_each_child_is_told_by_its_own_sitting(told: ByFiles) -> None:
    first = cut_off(told, 1.111)
    sit(told.folder, Sitter(1.05))
    assert "note" not in told.tell().out
    gains = {shot.child: shot.gain for shot in shots(told)}
    assert len(gains) >= 3
    assert gains.pop(first) == pytest.approx(1.10 / 1.111)
    assert list(gains.values()) == pytest.approx([1.10 / 1.05] * len(gains))
    assert {shot.child: shot.funnel.faster for shot in shots(told)} == {first: 0, **dict.fromkeys(gains, 1)}
    count = len(gains) + 1
    assert f'{CAUTION}: {count} of {count}; "faster" is within one sitting' in compared(told)


def test_a_child_that_was_lost_with_its_sitting_named_is_told_by_the_one_that_measured_it_anew(told: ByFiles) -> None:
    name = cut_off(told, 1.111, child=1.101)
    (told.folder.measured / f"{name}.json").unlink()
    sit(told.folder, Sitter(1.05))
    told.tell()
    assert [name in sitting.children for sitting in recorded(told).values()] == [True, True]
    assert [shot.gain for shot in shots(told)] == pytest.approx([1.10 / 1.05] * len(shots(told)))


def test_a_child_whose_file_came_from_elsewhere_is_told_by_no_sitting(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    name = children(told)[0]
    source = (told.folder.pending / f"{name}.cu").read_bytes().decode("utf-8")
    elsewhere = strict_json(measured_at(source, 1.20).to_json())
    (told.folder.measured / f"{name}.json").write_text(elsewhere, encoding="utf-8")
    told.tell()
    for shot in shots(told):
        speed, parent = (1.20, 1.08) if shot.child == name else (1.10, 1.12)
        assert (shot.gain, shot.same_sitting) == (pytest.approx(speed / parent), shot.child != name)
    count = len({shot.child for shot in shots(told)})
    assert f"{CAUTION}: {count - 1} of {count}; {EARLIER}" in compared(told)


def test_a_child_that_two_sittings_claim_to_the_last_digit_is_told_by_neither(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    name = children(told)[0]
    claimed = {name: sittings(told)[0].children[name]}
    second = Sitting(parents={PARENT_ID: measured_at(PARENT, 1.05)}, children=claimed)
    put_sitting(again_files(told)[0].with_name("z.json"), second)
    told.tell()
    assert {shot.child for shot in shots(told) if not shot.same_sitting} == {name}
    assert next(shot.gain for shot in shots(told) if shot.child == name) == pytest.approx(1.10 / 1.08)


def test_a_sitting_is_recorded_once_its_children_are_all_there(told: ByFiles) -> None:
    first = cut_off(told, 1.11)
    told.tell()
    assert recorded(told) == {}
    sit(told.folder, Sitter(1.12))
    assert "the search is over" in told.tell().out or "is complete" in told.tell().out
    stems = [path.stem for path in again_files(told)]
    one, other = recorded(told).items()
    assert one == (f"{stems[0]}/1", sittings(told)[0])
    assert other == (f"{stems[1]}/{len(other[1].children)}", sittings(told)[1])
    assert list(one[1].children) == [first]
    assert names(told.folder.pending) == ["job.json"]
    assert "note" not in told.tell().out
    assert len(recorded(told)) == 2


def test_one_that_was_carried_before_its_end_is_recorded_once_more(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    [path], [whole] = again_files(told), sittings(told)
    name = children(told)[0]
    put_sitting(path, replace(whole, children={name: whole.children[name]}))
    told.tell()
    assert {shot.child for shot in shots(told) if shot.same_sitting} == {name}
    put_sitting(path, whole)
    assert "note" not in told.tell().out
    assert list(recorded(told)) == [f"{path.stem}/1", f"{path.stem}/{len(whole.children)}"]
    assert {shot.same_sitting for shot in shots(told)} == {True}


def test_one_that_was_altered_is_a_note_and_changes_nothing(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    told.tell()
    [path], before = again_files(told), recorded(told)
    put_sitting(path, replace(sittings(told)[0], parents={PARENT_ID: measured_at(PARENT, 1.05)}))
    assert f"note: {path} differs from what was told first, which counts" in told.tell().out
    assert recorded(told) == before


def test_a_single_shot_that_is_over_takes_them(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    [path], [sitting] = again_files(told), sittings(told)
    path.unlink()
    told.tell()
    for shot in shots(told):
        assert (shot.funnel.faster, shot.same_sitting) == (1, False)
        assert shot.gain == pytest.approx(1.10 / 1.08)
    assert f"{CAUTION}: 0 of {len({shot.child for shot in shots(told)})}; {EARLIER}" in compared(told)
    put_sitting(path, sitting)
    assert "the search is over: generation budget reached: 1 of 1" in told.tell().out
    for shot in shots(told):
        assert (shot.funnel.faster, shot.same_sitting) == (0, True)
        assert shot.gain == pytest.approx(1.10 / 1.12)
        assert shot.best_scenario == pytest.approx(1.10 / 1.12 - 1)


def elsewhere(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, environment=replace(evaluation.environment, device="another device"))


@pytest.mark.parametrize(
    ("evaluation", "said"),
    [
        (measured_at(WRONG, 1.12), f"is not taken: {PARENT_ID}: it is of another source"),
        (replace(measured_at(PARENT, 1.12), suite="other"), "it was measured on the suite other"),
        (elsewhere(measured_at(PARENT, 1.12)), "device was test device, now another device"),
        (failed(PARENT, Status.INCORRECT, "o differs", suite="smoke"), "is not taken: INCORRECT, and it passed before"),
    ],
)
def test_one_that_cannot_be_used_is_a_note(told: ByFiles, evaluation: Evaluation, said: str) -> None:
    sit(told.folder, Sitter(1.12))
    [path], [sitting] = again_files(told), sittings(told)
    put_sitting(path, replace(sitting, parents={PARENT_ID: evaluation}))
    out = told.tell().out
    assert f"note: {path}" in out
    assert said in out
    assert recorded(told) == {}


def test_a_child_that_a_job_names_as_a_parent_is_said_and_measured_after_all(told: ByFiles) -> None:
    path, name = told.folder.pending / "job.json", children(told)[0]
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(record | {"again": [PARENT_ID, name]}), encoding="utf-8")
    done, _ = sit(told.folder, Sitter(1.12))
    assert name not in done.evaluations
    said = told.tell().out
    assert f"note: {again_files(told)[0]}: {name} is no parent of this run; a candidate is measured by evo" in said
    done, _ = sit(told.folder, Sitter(1.05))
    assert list(done.evaluations) == [name]
    told.tell()
    assert next(shot.gain for shot in shots(told) if shot.child == name) == pytest.approx(1.10 / 1.05)
    assert {shot.same_sitting for shot in shots(told)} == {True}


def test_a_parent_that_an_audit_refused_stays_refused(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    told.tell()
    audit = Audit(why=("suspicious",), checks=(failed_check(),))
    with open_archive(told.folder) as archive:
        archive.record_event(EventRecord(kind=AUDIT_EVENT, key=PARENT_ID, record=strict_json(audit.to_json())))
    assert {(shot.gain, shot.same_sitting) for shot in shots(told)} == {(None, False)}
    assert CAUTION not in compared(told)


def test_an_event_that_is_no_sitting_gets_one_line(told: ByFiles) -> None:
    sit(told.folder, Sitter(1.12))
    told.tell()
    with open_archive(told.folder) as archive:
        archive.record_event(EventRecord(kind="remeasured", key="x", record="[]"))
    said = evo("compare", str(told.folder.path))
    assert (said.code, said.errors.count("\n")) == (2, 1)
    assert "event remeasured x is no sitting" in said.errors


def test_a_trace_carries_them_and_is_compared_and_replayed_alike(told: ByFiles, tmp_path: Path) -> None:
    cut_off(told, 1.111)
    sit(told.folder, Sitter(1.12))
    told.tell()
    trace = tmp_path / "trace.jsonl"
    assert evo("trace", "export", str(told.folder.path), "--out", str(trace)).code == 0
    events = [json.loads(line) for line in trace.read_text().splitlines() if '"remeasured"' in line]
    assert [(each["kind"], each["event"], each["key"]) for each in events] == [
        ("event", "remeasured", key) for key in recorded(told)
    ]
    for name in (str(told.folder.path), str(trace)):
        assert evo("compare", name, "--json", f"{tmp_path / Path(name).name}.json").code == 0
    assert (tmp_path / "trace.jsonl.json").read_bytes() == (tmp_path / f"{told.folder.name}.json").read_bytes()
    with contextlib.chdir(tmp_path):
        replayed = evo("trace", "replay", str(trace), "name=replayed")
    assert (replayed.code, "not as in the trace" in replayed.out) == (0, False)
    again = replace(told, folder=RunFolder(tmp_path / "runs" / "replayed"))
    assert recorded(again) == recorded(told)
    assert shots(again) == shots(told)


def test_a_search_takes_no_sitting(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.begin()
    run.evaluate()
    run.tell()
    put_sitting(
        run.folder.measured / "again" / "x.json", Sitting(parents={PARENT_ID: measured_at(PARENT, 1)}, children={})
    )
    run.tell()
    assert recorded(run) == {}
