"""A best that could not be audited is told as such, and the run is gone on with until it is."""

import random
from pathlib import Path

import pytest
from audited_judge import AuditedJudge, passed_check, wide
from small_search import assemble, small_bank, small_config, small_settled

from evo.audits import AUDIT_EVENT
from evo.crowning import crown_best
from evo.report.reading import read_account
from evo.result import read_result, write_result
from evo.run_list import RunRow, RunState, list_runs
from evo.search import prepare_search
from evo.stop import Interrupted, StopSearch, is_final
from fitness.audit_record import Audit, AuditCheck
from fitness.faults import EnvironmentFault
from population.archive import create_archive, open_archive
from population.atomic_file import strict_json
from population.records import EventRecord
from population.run_folder import RunFolder, create_run_folder

SPENT = "generation budget reached: 2 of 2"


class Faulty(AuditedJudge):
    """Looks at wins as they come; of the device that a run's best asks for it finds nothing."""

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        raise EnvironmentFault("the device is lost")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def part(folder: RunFolder, judge: AuditedJudge) -> StopSearch:
    """One part of a run of two generations, to its result.json."""
    config = small_config(generations=2)
    random.seed("whatever the process did before")
    with open_archive(folder) if folder.archive.exists() else create_archive(folder) as archive:
        search = assemble(config, folder, archive, judge)
        stop = crown_best(search.toolbox.crown, search.run())
        prepared = prepare_search(config, small_settled(config), small_bank(), archive, folder, lambda _: None)
        write_result(folder, prepared.result(search.state, stop))
    return stop


def row_of(folder: RunFolder) -> RunRow:
    [row] = list_runs(folder.path, now=0.0)
    return row


def test_a_best_that_could_not_be_audited_is_told_and_the_run_has_not_come_to_its_end(folder: RunFolder) -> None:
    stop = part(folder, Faulty(lambda _: False))
    assert (stop.exit_code, stop.reason) == (2, f"{SPENT}; its best is not audited: the device is lost")
    result, row = read_result(folder), row_of(folder)
    assert result is not None
    assert (result["best"]["audit"], result["stop_reason"]) == ("not run", stop.reason)
    assert (row.state, row.note) == (RunState.INTERRUPTED, stop.reason)
    assert read_account(folder, now=0.0).best_audit is None


def test_a_run_whose_budget_is_used_up_is_gone_on_with_to_audit_its_best(folder: RunFolder) -> None:
    part(folder, Faulty(lambda _: False))
    before, judge = read_result(folder), AuditedJudge(lambda _: False)
    stop = part(folder, judge)
    result = read_result(folder)
    assert before is not None
    assert result is not None
    assert (stop.exit_code, stop.reason, judge.judged, len(judge.crowned)) == (None, SPENT, [], 1)
    audited = {"audit": "passed", "audit_made": ["new inputs", "full182"]}
    assert result == before | {"stop_reason": SPENT, "best": before["best"] | audited}
    assert row_of(folder).state is RunState.FINISHED
    audit = read_account(folder, now=0.0).best_audit
    assert audit is not None
    assert audit.passed


def test_what_a_best_passed_as_a_suspicious_win_is_not_yet_the_audit_of_a_best(folder: RunFolder) -> None:
    part(folder, Faulty(lambda _: False))
    before = read_result(folder)
    assert before is not None
    audit = Audit(why=("far ahead",), checks=(passed_check(),))
    with open_archive(folder) as archive:
        archive.record_event(
            EventRecord(kind=AUDIT_EVENT, key=before["best"]["id"], record=strict_json(audit.to_json()))
        )
    part(folder, Faulty(lambda _: False))
    assert read_result(folder) == before
    assert before["best"]["audit"] == "not run"


def test_a_best_that_fails_when_the_run_is_gone_on_with_is_no_best(folder: RunFolder) -> None:
    part(folder, Faulty(lambda _: False))
    before = read_result(folder)
    part(folder, AuditedJudge(lambda _: False, wide))
    result = read_result(folder)
    assert before is not None
    assert result is not None
    assert result["best"]["id"] != before["best"]["id"]
    assert (result["best"]["audit"], result["stop_reason"]) == ("passed", SPENT)


def test_a_signal_during_the_last_audit_is_an_interruption() -> None:
    def crown() -> None:
        raise Interrupted("SIGTERM", 143)

    stop = crown_best(crown, StopSearch(SPENT))
    assert (stop.exit_code, stop.reason) == (143, f"{SPENT}; its best is not audited: interrupted by SIGTERM")
    assert not is_final(stop.reason)


def test_a_search_that_was_interrupted_has_no_best_to_audit_yet() -> None:
    interrupted = Interrupted("SIGINT", 130)
    assert crown_best(pytest.fail, interrupted) is interrupted
