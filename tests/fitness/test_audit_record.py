"""The verdict of an audit, and what becomes of an evaluation that it refuses."""

import json

import pytest

from fitness.audit_record import Audit, AuditCheck, Finding, after_audit
from fitness.evaluation import Status
from tests.fitness.test_evaluator import evaluator, source

GOOD = AuditCheck(name="new inputs", finding=Finding.PASSED, detail="right again")
BAD = AuditCheck(name="racecheck", finding=Finding.FAILED, detail="1 errors")
LEFT_OUT = AuditCheck(name="memcheck", finding=Finding.SKIPPED, detail="not here")


@pytest.mark.parametrize(
    ("checks", "passed", "failed", "reason"),
    [
        ((GOOD, LEFT_OUT), True, False, ""),
        ((GOOD, BAD), False, True, "racecheck: 1 errors"),
        ((LEFT_OUT,), False, False, ""),
    ],
)
def test_one_failure_fails_it_and_nothing_but_skipped_checks_is_no_verdict(checks, passed, failed, reason):
    audit = Audit(why=("2.00 times its parent's speed",), checks=checks)
    assert (audit.passed, audit.failed, audit.reason) == (passed, failed, reason)


def test_an_audit_survives_json():
    audit = Audit(why=("a", "b"), checks=(GOOD, BAD, LEFT_OUT))
    record = json.loads(json.dumps(audit.to_json()))
    assert (record["passed"], record["reason"]) == (False, "racecheck: 1 errors")
    assert Audit.from_json(record) == audit


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
