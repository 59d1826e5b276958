"""A single shot's parents are measured once more beside their children, and a gain is told by that."""

import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from audited_judge import failed_check
from by_files import ByFiles, by_files, copied, evo, judge, names
from small_records import failed, passed
from small_search import MACHINE, SEED

from evo.audits import AUDIT_EVENT
from evo.choices import Settled
from evo.compare.shots import Shot, read_shots
from evo.config import Config
from evo.judging import EvaluatesAll
from evo.measuring import Measurements, find_work, measure, settle_here
from evo.pending import publish, read_job
from fitness.audit_record import Audit
from fitness.evaluation import Evaluation, Status
from fitness.faults import EnvironmentFault
from fitness.manifest import with_knobs
from fitness.probe import Machine
from population.archive import open_archive
from population.archive_reader import read_archive
from population.atomic_file import parse_json, strict_json
from population.individual import individual_id
from population.records import EventRecord
from population.run_folder import RunFolder

PARENT = SEED.read_text(encoding="utf-8")
WRONG = with_knobs(PARENT, {"STAGES": 4, "BLOCK_M": 128})  # a seed that does not pass, and so is no parent
PARENT_ID = individual_id(PARENT)
FASTER = '"faster" is against figures from before the questions, perhaps of another sitting'


class Sitting:
    """EvaluatesAll: children at 1.10, the parent at another speed in each sitting; None for one that fails."""

    def __init__(self, parent: float | None, meanwhile: Callable[[int], None] = lambda _count: None) -> None:
        self._parent = parent
        self._meanwhile = meanwhile
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        evaluations = []
        for place, source in enumerate(sources):
            self._meanwhile(len(self.judged))
            self.judged.append(individual_id(source))
            evaluations.append(self._evaluation(source))
            if on_done is not None:
                on_done(place, evaluations[-1])
        return evaluations

    @contextlib.contextmanager
    def opened(self, config: Config, settled: Settled, machine: Machine) -> Iterator[EvaluatesAll]:
        yield self

    def _evaluation(self, source: str) -> Evaluation:
        speed = self._parent if individual_id(source) == PARENT_ID else 1.10
        if speed is None or individual_id(source) == individual_id(WRONG):
            return failed(source, Status.INCORRECT, "o differs", suite="smoke")
        return measured_at(source, speed)


def measured_at(source: str, speed: float) -> Evaluation:
    return passed(source, dict.fromkeys(judge(PARENT).speedups, speed), suite="smoke")


def sit(folder: RunFolder, sitting: Sitting) -> tuple[Measurements, list[str]]:
    """What `evo evaluate` does in a sitting, and what it hears of as measured again."""
    work, heard = find_work(folder, ["backend=recorded", "backend.table=x"]), []
    settled = settle_here(work, MACHINE)
    done = measure(
        work, settled, MACHINE, sitting.opened, lambda _name, _evaluation: None, lambda name, _: heard.append(name)
    )
    return done, heard


@pytest.fixture(scope="module")
def once_told(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    """A single shot about one parent, which was at 1.08 in the first sitting; its children wait."""
    root = tmp_path_factory.mktemp("again")
    (root / "wrong.cu").write_text(WRONG, encoding="utf-8")
    run = by_files(root)
    styles = "single_shot.styles=[question,bare]"
    seeds = f"seeds=['{SEED}','{root / 'wrong.cu'}']"
    run.begin("experiment=single_shot", "single_shot.questions=6", styles, seeds)
    assert "again" not in json.loads((run.folder.pending / "job.json").read_text(encoding="utf-8"))
    sit(run.folder, Sitting(1.08))
    run.ask()
    run.answer()
    said = run.tell()
    assert f" in {run.folder.pending}, beside 1 parent to be measured again: evo evaluate" in said.out
    return run


@pytest.fixture
def told(once_told: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_told, tmp_path)


def children(run: ByFiles) -> list[str]:
    return sorted(path.stem for path in run.folder.pending.glob("*.cu") if path.stem != PARENT_ID)


def again_file(run: ByFiles) -> Path:
    return run.folder.measured / "again" / f"{PARENT_ID}.json"


def put_again(run: ByFiles, evaluation: Evaluation) -> None:
    again_file(run).parent.mkdir(exist_ok=True)
    again_file(run).write_text(strict_json(evaluation.to_json()), encoding="utf-8")


def recorded(run: ByFiles) -> Mapping[str | None, Evaluation]:
    with read_archive(run.folder) as archive:
        events = archive.events_of("remeasured")
        return {event.key: Evaluation.from_json(parse_json(event.record)) for event in events}


def test_children_are_published_with_their_parents(told: ByFiles) -> None:
    job = read_job(told.folder.pending)
    assert job.again == (PARENT_ID,)
    assert len(children(told)) >= 2
    assert individual_id((told.folder.pending / f"{PARENT_ID}.cu").read_bytes().decode("utf-8")) == PARENT_ID
    assert individual_id(WRONG) not in children(told)


def test_a_job_says_which_are_measured_again_and_an_older_one_says_nothing(told: ByFiles, tmp_path: Path) -> None:
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


def test_parents_are_measured_first_into_a_folder_of_their_own(told: ByFiles) -> None:
    first = (told.folder.measured / f"{PARENT_ID}.json").read_bytes()
    sitting = Sitting(1.12)
    done, heard = sit(told.folder, sitting)
    assert sitting.judged == [PARENT_ID, *children(told)]
    assert (heard, list(done.again)) == ([PARENT_ID], [PARENT_ID])
    assert sorted(done.evaluations) == children(told)
    assert names(again_file(told).parent) == [f"{PARENT_ID}.json"]
    record = parse_json(again_file(told).read_text(encoding="utf-8"))
    assert Evaluation.from_json(record) == measured_at(PARENT, 1.12)
    assert (told.folder.measured / f"{PARENT_ID}.json").read_bytes() == first


def test_where_the_first_sitting_is_not_known_they_are_no_candidates(told: ByFiles, tmp_path: Path) -> None:
    elsewhere = RunFolder(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    told.folder.pending.rename(elsewhere.pending)
    sit(elsewhere, Sitting(1.12))
    assert f"{PARENT_ID}.json" not in names(elsewhere.measured)
    assert names(elsewhere.measured / "again") == [f"{PARENT_ID}.json"]


def test_each_sitting_in_which_a_child_waits_measures_them(told: ByFiles) -> None:
    def end_before_the_third(count: int) -> None:
        if count == 2:
            signal.raise_signal(signal.SIGTERM)

    done, _ = sit(told.folder, Sitting(1.11, end_before_the_third))
    assert (done.interruption is not None, len(done.evaluations), len(done.again)) == (True, 1, 1)
    sitting = Sitting(1.12)
    sit(told.folder, sitting)
    assert sitting.judged == [PARENT_ID, *(name for name in children(told) if name not in done.evaluations)]
    assert Evaluation.from_json(parse_json(again_file(told).read_text(encoding="utf-8"))).geomean == pytest.approx(1.12)
    assert find_work(told.folder, []).is_done
    again_file(told).unlink()
    missing = Sitting(1.13)
    sit(told.folder, missing)
    assert missing.judged == [PARENT_ID]


def test_one_that_did_not_come_with_the_folder_is_named(told: ByFiles) -> None:
    (told.folder.pending / f"{PARENT_ID}.cu").unlink()
    work = find_work(told.folder, [])
    assert (list(work.again), sorted(work.sources)) == ([], children(told))
    assert [note.split("; ")[0] for note in work.notes] == [f"{told.folder.pending / PARENT_ID}.cu is not there"]
    (told.folder.pending / f"{PARENT_ID}.cu").write_text("half", encoding="utf-8")
    assert [" is not whole, or was altered: " in note for note in find_work(told.folder, []).notes] == [True]


def test_tell_records_the_first_and_names_one_that_differs(told: ByFiles) -> None:
    sit(told.folder, Sitting(1.12))
    assert "the search is over" in told.tell().out or "is complete" in told.tell().out
    assert recorded(told) == {PARENT_ID: measured_at(PARENT, 1.12)}
    assert names(told.folder.pending) == ["job.json"]
    assert "note" not in told.tell().out
    put_again(told, measured_at(PARENT, 1.05))
    assert f"note: {again_file(told)} differs from the one that was told first, which counts" in told.tell().out
    assert recorded(told) == {PARENT_ID: measured_at(PARENT, 1.12)}


def test_a_single_shot_that_is_over_takes_them(told: ByFiles) -> None:
    sit(told.folder, Sitting(1.12))
    again_file(told).unlink()
    told.tell()
    assert "the search is over: generation budget reached: 1 of 1" in told.ask().out
    assert recorded(told) == {}
    put_again(told, measured_at(PARENT, 1.12))
    assert "the search is over: generation budget reached: 1 of 1" in told.tell().out
    assert recorded(told) == {PARENT_ID: measured_at(PARENT, 1.12)}


def elsewhere(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, environment=replace(evaluation.environment, device="another device"))


@pytest.mark.parametrize(
    ("evaluation", "said"),
    [
        (measured_at(WRONG, 1.12), "is not taken: it is of another source"),
        (replace(measured_at(PARENT, 1.12), suite="other"), "it was measured on the suite other"),
        (elsewhere(measured_at(PARENT, 1.12)), "device was test device, now another device"),
        (failed(PARENT, Status.INCORRECT, "o differs", suite="smoke"), "is not taken: INCORRECT, and its parent"),
    ],
)
def test_one_that_cannot_be_used_is_a_note(told: ByFiles, evaluation: Evaluation, said: str) -> None:
    put_again(told, evaluation)
    out = told.tell().out
    assert f"note: {again_file(told)} is not taken: " in out
    assert said in out
    assert recorded(told) == {}


def test_the_command_says_what_they_are(told: ByFiles) -> None:
    table = told.folder.path / "table.jsonl"
    table.write_bytes(told.table.read_bytes())
    said = told.command("evaluate", "backend=recorded", f"backend.table='{table}'")
    assert (said.code, said.errors) == (0, "")
    assert f"{PARENT_ID} again  {judge(PARENT).geomean:.4f} ×" in said.out
    count = len(children(told)) + 1
    assert f"{count} of {count} measured into {told.folder.measured}" in said.out


def shots(run: ByFiles) -> list[Shot]:
    """Those that led to a kernel of their own."""
    return [shot for shot in read_shots("one", run.folder) if shot.outcome == "child"]


def test_a_child_is_faster_than_what_its_parent_was_in_the_same_sitting(told: ByFiles) -> None:
    sit(told.folder, Sitting(1.12))
    kept = again_file(told).read_bytes()
    again_file(told).unlink()
    told.tell()
    before = shots(told)
    for shot in before:
        assert (shot.funnel.faster, shot.parent_again) == (1, False)
        assert shot.gain == pytest.approx(1.10 / 1.08)
    assert f"caution: no parent was measured again beside its children: {FASTER}" in compared(told)
    again_file(told).write_bytes(kept)
    told.tell()
    after = shots(told)
    assert len(after) == len(before) >= 2
    for shot in after:
        assert (shot.funnel.faster, shot.parent_again) == (0, True)
        assert shot.gain == pytest.approx(1.10 / 1.12)
        assert shot.best_scenario == pytest.approx(1.10 / 1.12 - 1)
    assert compared(told).count('beside their children: all 1; "faster" is within one sitting') == 1


def compared(run: ByFiles) -> str:
    said = evo("compare", str(run.folder.path))
    assert said.code == 0
    return said.out


def test_a_parent_that_an_audit_refused_stays_refused(told: ByFiles) -> None:
    sit(told.folder, Sitting(1.12))
    told.tell()
    audit = Audit(why=("suspicious",), checks=(failed_check(),))
    with open_archive(told.folder) as archive:
        archive.record_event(EventRecord(kind=AUDIT_EVENT, key=PARENT_ID, record=strict_json(audit.to_json())))
    assert {(shot.gain, shot.parent_again) for shot in shots(told)} == {(None, False)}


def test_a_trace_carries_them_and_is_compared_and_replayed_alike(told: ByFiles, tmp_path: Path) -> None:
    sit(told.folder, Sitting(1.12))
    told.tell()
    trace = tmp_path / "trace.jsonl"
    assert evo("trace", "export", str(told.folder.path), "--out", str(trace)).code == 0
    events = [json.loads(line) for line in trace.read_text().splitlines() if '"remeasured"' in line]
    assert [(each["kind"], each["event"], each["key"]) for each in events] == [("event", "remeasured", PARENT_ID)]
    for name in (str(told.folder.path), str(trace)):
        assert evo("compare", name, "--json", f"{tmp_path / Path(name).name}.json").code == 0
    assert (tmp_path / "trace.jsonl.json").read_bytes() == (tmp_path / f"{told.folder.name}.json").read_bytes()
    with contextlib.chdir(tmp_path):
        replayed = evo("trace", "replay", str(trace), "name=replayed")
    assert (replayed.code, "not as in the trace" in replayed.out) == (0, False)
    again = replace(told, folder=RunFolder(tmp_path / "runs" / "replayed"))
    assert recorded(again) == recorded(told)
    assert shots(again) == shots(told)


def test_a_search_measures_no_parent_again(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.begin()
    run.evaluate()
    run.ask("n=2")
    run.answer()
    run.tell()
    assert read_job(run.folder.pending).again == ()
    put_again(run, measured_at(PARENT, 1.12))
    assert find_work(run.folder, []).again == {}
    run.tell()
    assert recorded(run) == {}
