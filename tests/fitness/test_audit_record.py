"""The verdict of an audit, and what becomes of an evaluation that it refuses."""

import json

import pytest

from fitness.audit_record import Audit, AuditCheck, Finding, after_audit
from fitness.evaluation import Status
from tests.fitness.test_evaluator import evaluator, source

GOOD = AuditCheck(name="new inputs", finding=Finding.PASSED, detail="right again")
BAD = AuditCheck(name="racecheck", finding=Finding.FAILED, detail="1 errors")
LEFT_OUT = AuditCheck(name="memcheck", finding=Finding.SKIPPED, detail="not here")
NOT_DUE = AuditCheck(name="full182", finding=Finding.NOT_DUE, detail="UNSUPPORTED: head_dim 64 alone")


@pytest.mark.parametrize(
    ("checks", "verdict", "reason"),
    [
        ((GOOD,), "passed", ""),
        ((GOOD, NOT_DUE), "passed", ""),
        ((GOOD, LEFT_OUT), "passed in part", ""),
        ((GOOD, LEFT_OUT, BAD), "failed", "racecheck: 1 errors"),
        ((LEFT_OUT, NOT_DUE), "not run", ""),
    ],
)
def test_it_passed_where_all_that_is_due_was_checked_and_nothing_failed(checks, verdict, reason):
    audit = Audit(why=("2.00 times its parent's speed",), checks=checks)
    assert (audit.verdict, audit.reason) == (verdict, reason)
    assert (audit.passed, audit.failed) == (verdict == "passed", verdict == "failed")


def test_what_was_left_out_is_told_with_the_reason():
    audit = Audit(why=("x",), checks=(GOOD, LEFT_OUT, NOT_DUE))
    assert audit.made == (GOOD.name,)
    assert audit.left_out == {
        "memcheck": "skipped: not here", "full182": "not due: UNSUPPORTED: head_dim 64 alone"
    }  # fmt: skip


def test_an_audit_survives_json():
    audit = Audit(why=("a", "b"), checks=(GOOD, BAD, LEFT_OUT))
    record = json.loads(json.dumps(audit.to_json()))
    assert (record["passed"], record["verdict"]) == (False, "failed")
    assert record["reason"] == "racecheck: 1 errors"
    assert Audit.from_json(record) == audit


def test_a_record_of_before_there_was_a_verdict_in_part_is_read_by_its_checks():
    """What it was called then does not count: a tool that did not run was no reason to call it less."""
    checks = [{"name": "new inputs", "finding": "passed", "detail": "right again"},
              {"name": "memcheck", "finding": "skipped", "detail": "it took longer than 300 s"}]  # fmt: skip
    old = Audit.from_json({"why": ["x"], "checks": checks, "passed": True, "reason": ""})
    assert old.verdict == "passed in part"


def test_an_audit_without_checks_is_none():
    with pytest.raises(ValueError, match="no checks"):
        Audit(why=(), checks=())


def test_a_refused_evaluation_is_wrong_and_says_why():
    found = after_audit(evaluator().evaluate(source("right")), Audit(why=("x",), checks=(BAD,)))
    assert (found.status, found.geomean, found.timings) == (Status.INCORRECT, None, ())
    assert found.reason == "the audit of this win failed: racecheck: 1 errors"


@pytest.mark.parametrize("audit", [None, Audit(why=("x",), checks=(GOOD,))])
def test_an_audit_that_did_not_fail_changes_nothing(audit):
    evaluation = evaluator().evaluate(source("right"))
    assert after_audit(evaluation, audit) is evaluation


def test_an_audit_that_failed_changes_no_evaluation_without_a_score():
    evaluation = evaluator().evaluate("no kernel")
    assert evaluation.geomean is None
    assert after_audit(evaluation, Audit(why=("x",), checks=(BAD,))) is evaluation
