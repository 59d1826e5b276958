"""Whose fault it is where a worker breaks under an examination."""

import pytest

from fitness.examination import Examination, Examined
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.patient_examiner import PatientExaminer
from fitness.plan import SuitePlan

JOB = Examination(plan=SuitePlan(scenarios=(), edges=()), binaries={}, settings=JudgeSettings(), rng_seed=1)
RIGHT = Examined(scaled_ms={"a": 1.0})


class Breaks:
    """Raises one fault after the other, and then examines."""

    def __init__(self, *faults):
        self.faults = list(faults)

    def examine(self, job):
        assert job is JOB
        if self.faults:
            raise self.faults.pop(0)
        return RIGHT


def test_a_worker_that_broke_once_is_asked_again():
    assert PatientExaminer(Breaks(DoubtfulFault("one"))).examine(JOB) == RIGHT


def test_a_candidate_that_broke_two_workers_has_failed():
    found = PatientExaminer(Breaks(DoubtfulFault("one"), DoubtfulFault("other"))).examine(JOB)
    assert found.scaled_ms == {}
    assert found.fault.startswith("it ended two workers")
    assert found.fault.endswith("one; other")


@pytest.mark.parametrize("before", [(), (DoubtfulFault("one"),)])
def test_what_no_candidate_can_have_done_is_the_machines_fault(before):
    with pytest.raises(EnvironmentFault, match="no GPU"):
        PatientExaminer(Breaks(*before, EnvironmentFault("no GPU"))).examine(JOB)
