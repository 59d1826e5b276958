"""Audits by a pool's workers: what becomes of a candidate that ends them."""

from types import SimpleNamespace

import pytest

from evo.auditors import PooledAuditor
from fitness.audit_record import AuditCheck, Finding
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.worker_pool import WorkerPool

RIGHT = (AuditCheck(name="full", finding=Finding.PASSED, detail="right"),)


class Hand:
    """A worker that does nothing."""

    def abort(self):
        pass

    def close(self):
        pass


class Breaking:
    """Audits that end a worker by each of the faults."""

    def __init__(self, *faults):
        self.faults = list(faults)

    def audit_champion(self, source):
        if self.faults:
            raise self.faults.pop(0)
        return RIGHT


def audited(*faults):
    auditor = Breaking(*faults)
    with WorkerPool([Hand()], ready=lambda worker: None) as workers:
        return PooledAuditor(SimpleNamespace(workers=workers), lambda worker: auditor).audit_champion("source")


def test_an_audit_that_ended_two_workers_is_failed():
    (check,) = audited(DoubtfulFault("the driver gave up"), DoubtfulFault("the reference crashed"))
    assert check.finding is Finding.FAILED
    assert "the driver gave up; the reference crashed" in check.detail


def test_one_that_ended_one_is_made_again():
    assert audited(DoubtfulFault("the driver gave up")) == RIGHT


def test_a_broken_machine_is_held_against_nobody():
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        audited(EnvironmentFault("the disk is full"), EnvironmentFault("the disk is full"))
