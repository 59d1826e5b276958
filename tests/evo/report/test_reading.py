"""The account of a run agrees with its archive, whatever state the run is in."""

import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from small_runs import FAILURE, write_run

from evo.audits import AUDIT_EVENT
from evo.question_records import question_rows
from evo.report.account import Account
from evo.report.diff import Kind
from evo.report.reading import gains_over_last, read_account
from evo.result import best_of, build_result
from evo.run_list import RunState
from fitness.audit_record import Audit, AuditCheck, Finding
from fitness.evaluation import Evaluation
from population.archive import create_archive, open_archive
from population.archive_reader import read_archive
from population.atomic_file import parse_json, strict_json
from population.faults import ArchiveError
from population.records import EventRecord
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture(scope="module")
def account(bred: RunFolder) -> Account:
    return read_account(bred, now=0.0)


def evaluations(run: RunFolder) -> dict[str, Evaluation]:
    with read_archive(run) as archive:
        return {each.individual_id: Evaluation.from_json(parse_json(each.record)) for each in archive.evaluations()}


def refuse(run: RunFolder, kernel: str) -> None:
    check = AuditCheck(name="new inputs", finding=Finding.FAILED, detail="wrong on other inputs")
    audit = Audit(why=("far ahead",), checks=(check,))
    with open_archive(run) as archive:
        archive.record_event(EventRecord(kind=AUDIT_EVENT, key=kernel, record=strict_json(audit.to_json())))


def test_counts_and_the_curve_are_those_of_the_result(bred: RunFolder, account: Account) -> None:
    with read_archive(bred) as archive:
        result = build_result(archive, settings={}, generations=0, stop_reason="")
        assert account.statuses == dict(sorted(archive.statuses().items(), key=lambda item: (-item[1], item[0])))
        assert account.spend == archive.spend_so_far()
        assert list(account.questions) == question_rows(archive)
    assert account.best_so_far == result["history"]
    assert account.best is not None
    assert (account.best.kernel, account.best.geomean) == (result["best"]["id"], result["best"]["geomean"])
    assert (len(account.measured), account.waiting) == (60, 0)


def test_milestones_are_the_steps_of_the_curve(account: Account) -> None:
    curve = account.best_so_far
    steps = [place for place, best in enumerate(curve, start=1) if place == 1 or best > curve[place - 2]]
    assert [each.place for each in account.milestones] == steps
    assert [each.geomean for each in account.milestones] == [curve[place - 1] for place in steps]
    assert all(len(each.timings) == 6 for each in account.milestones)
    gains = gains_over_last(account.milestones)
    assert gains[0] is None
    assert gains[1] == account.milestones[1].geomean / account.milestones[0].geomean


def test_the_line_leads_from_the_champion_to_its_seed(bred: RunFolder, account: Account) -> None:
    best = best_of(list(evaluations(bred).items()))
    assert best is not None
    parents = {birth.id: birth.parent_ids for birth in account.births}
    assert account.line[0].kernel == best[0]
    assert all(step.parents[0] == older.kernel for step, older in pairwise(account.line))
    assert all(step.parents == parents[step.kernel] for step in account.line)
    assert (account.line[-1].parents, account.line[-1].question, account.line[-1].gain) == ((), None, None)


def test_every_step_has_its_question_gain_changes_and_diff(bred: RunFolder, account: Account) -> None:
    judged = evaluations(bred)
    assert len(account.line) > 3
    with read_archive(bred) as archive:
        for step, older in pairwise(account.line):
            child, parent = judged[step.kernel], judged[older.kernel]
            assert child.geomean is not None
            assert parent.geomean is not None
            assert step.gain == child.geomean / parent.geomean
            assert step.question == archive.question(archive.individual(step.kernel).birth)
            assert step.detail is not None
            assert step.detail.word == "changed 12 lines"
            assert {each.timing.scenario: each.factor for each in step.detail.changes} == {
                name: speedup / parent.speedups[name] for name, speedup in child.speedups.items()
            }
            pieces = step.detail.diff or ()
            added = [line for piece in pieces if piece.kind is Kind.ADDED for line in piece.text.splitlines()]
            source = archive.individual(step.kernel)
            new = [line for line in source.source.splitlines() if f"// tried {source.birth} &" in line]
            assert len(new) == 12
            assert set(new) <= set(added) <= set(source.source.splitlines())


def test_milestones_beside_the_line_are_told_too(account: Account) -> None:
    line = {step.kernel for step in account.line}
    beside = [each.kernel for each in reversed(account.milestones) if each.kernel not in line]
    assert [step.kernel for step in account.beside] == beside
    assert {each.kernel for each in account.milestones} <= account.told


def test_questions_without_a_kernel_and_kernels_without_a_measurement(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", [0.5, FAILURE, 0.8], usd=0.25, lost_usd=1.0, unreadable=2, asked_only=1)
    account = read_account(run, now=0.0)
    assert account.statuses == {"PASSED": 2, "INCORRECT": 1}
    assert account.childless == {"unreadable": 2}
    assert account.best_so_far == [0.5, 0.5, 0.8]
    assert account.spend["cost_usd"] == pytest.approx(0.25 * 4 + 1.0)
    assert [each.geomean for each in account.line] == [pytest.approx(0.8), 0.5]
    assert account.row.state is RunState.INTERRUPTED


def test_a_kernel_that_an_audit_refused_is_no_champion_and_no_milestone(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", [0.5, 0.8, 2.0, 0.6])
    seed, next_best, refused, _ = (each.kernel for each in read_account(run, now=0.0).measured)
    refuse(run, refused)
    account = read_account(run, now=0.0)
    assert list(account.audits) == [refused]
    assert account.audits[refused].why == ("far ahead",)
    assert account.best is not None
    assert (account.best.kernel, account.best.geomean) == (next_best, pytest.approx(0.8))
    assert [each.kernel for each in account.milestones] == [seed, next_best]
    assert [step.kernel for step in account.line] == [next_best, seed]
    assert account.beside == ()
    assert account.best_so_far == pytest.approx([0.5, 0.8, 0.8, 0.8])
    assert account.statuses == {"PASSED": 3, "INCORRECT": 1}
    assert account.row.best_geomean == account.best.geomean


def test_a_parent_that_an_audit_refused_gives_its_child_no_gain(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", [0.5, 0.8])
    seed, child = (each.kernel for each in read_account(run, now=0.0).measured)
    refuse(run, seed)
    account = read_account(run, now=0.0)
    best, parent = account.line
    assert [each.kernel for each in account.milestones] == [child]
    assert (best.kernel, best.gain, parent.kernel, parent.geomean) == (child, None, seed, None)
    assert best.detail is not None
    assert parent.detail is not None
    assert [each.parent_speedup for each in best.detail.changes] == [None]
    assert parent.detail.changes == ()


def test_a_run_in_which_nothing_passed(tmp_path: Path) -> None:
    account = read_account(write_run(tmp_path, "one", [FAILURE, FAILURE]), now=0.0)
    assert (account.best, account.line, account.beside, account.milestones) == (None, (), (), ())
    assert account.statuses == {"INCORRECT": 2}


def test_a_run_that_has_measured_nothing(tmp_path: Path) -> None:
    account = read_account(write_run(tmp_path, "one", [], asked_only=1), now=0.0)
    assert (account.measured, account.births, account.best_so_far) == ((), (), [])
    assert [(row.statistics.asked, row.unfinished) for row in account.questions] == [(0, 1)]


def test_a_run_that_is_being_written(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "now")
    with create_archive(folder):
        assert read_account(folder, now=0.0).row.state is RunState.RUNNING


def test_a_record_that_cannot_be_read_is_the_archives_fault(bred: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(bred.path, tmp_path / "copy")))
    connection = sqlite3.connect(run.archive)
    connection.execute("DROP TRIGGER evaluations_keep_UPDATE")
    connection.execute("UPDATE evaluations SET record = '{}'")
    connection.commit()
    connection.close()
    with pytest.raises(ArchiveError, match=r"archive\.sqlite: it holds a record that cannot be read"):
        read_account(run, now=0.0)


def test_reading_changes_no_file(bred: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(bred.path, tmp_path / "copy")))
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    read_account(run, now=0.0)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
