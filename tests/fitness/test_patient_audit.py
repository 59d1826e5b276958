"""What becomes of an audit in which workers end."""

import pytest

from fitness.audit_record import AuditCheck, Finding
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.patient_audit import PatientAuditor

RIGHT = (AuditCheck(name="new inputs", finding=Finding.PASSED, detail="right again"),)


class Breaking:
    """Its worker fails by the faults given, and is well after them."""

    def __init__(self, *faults):
        self.faults = list(faults)

    def audit(self, source, evaluation):
        return self.audit_champion(source)

    def audit_champion(self, source):
        if self.faults:
            raise self.faults.pop(0)
        return RIGHT


def both(*faults):
    """What each of the two audits says."""
    ways = (lambda auditor: auditor.audit("source", None), lambda auditor: auditor.audit_champion("source"))
    return [way(PatientAuditor(Breaking(*faults))) for way in ways]


def test_a_candidate_that_ends_two_workers_in_its_audit_fails_and_ends_no_run():
    for (check,) in both(DoubtfulFault("the driver gave up"), DoubtfulFault("the reference crashed")):
        assert check.finding is Finding.FAILED
        assert check.detail.endswith("well again at once: the driver gave up; the reference crashed")


def test_an_audit_is_made_once_more_after_a_doubtful_fault():
    assert both(DoubtfulFault("the driver gave up")) == both() == [RIGHT, RIGHT]


def test_a_fault_of_the_environment_is_left_as_it_is():
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        both(EnvironmentFault("the disk is full"))
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        both(DoubtfulFault("the driver gave up"), EnvironmentFault("the disk is full"))
