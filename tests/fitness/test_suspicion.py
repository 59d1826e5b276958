"""Which evaluations start an audit, each rule at its edge."""

from dataclasses import replace

import pytest

from fitness.evaluation import Status
from fitness.suspicion import suspicions
from tests.fitness.fake_device import scenario
from tests.fitness.test_evaluator import evaluator, source, timing

SHORT = scenario(batch=4, seqlen_q=1024, seqlen_k=1024, causal=False)
LONG = scenario(batch=4, seqlen_q=2048, seqlen_k=2048, causal=False)  # four times the work
OTHER = scenario(batch=8, seqlen_q=2048, seqlen_k=2048, causal=True)


def timed(shape, milliseconds, roof_ms=None):
    return replace(timing(shape.name), candidate_median_ms=milliseconds, roof_ms=roof_ms)


def suspicious(*timings, geomean=2.0, parent=None, gain=1.3):
    found = replace(evaluator().evaluate(source("right")), geomean=geomean, timings=timings)
    return suspicions(found, parent, gain, (SHORT, LONG, OTHER))


@pytest.mark.parametrize(("parent", "count"), [(None, 0), (2.0, 0), (1.6, 0), (1.5, 1), (0.1, 1)])
def test_a_gain_over_the_parent_from_the_set_factor_on(parent, count):
    found = suspicious(timed(SHORT, 1.0), parent=parent)
    assert len(found) == count
    assert all("times its parent's speed" in each for each in found)


def test_a_scenario_above_the_roof_by_more_than_a_tenth():
    assert suspicious(timed(SHORT, 1.0, roof_ms=1.09)) == ()
    [why] = suspicious(timed(SHORT, 1.0, roof_ms=1.2))
    assert why == f"{SHORT.name} in 1.0000 ms, 1.20 times the device's roof"


def test_time_that_does_not_grow_with_the_work():
    [why] = suspicious(timed(SHORT, 1.0), timed(LONG, 1.1))
    assert why == f"{LONG.name} is 4 times the work of {SHORT.name} and takes 1.10 times as long"
    assert suspicious(timed(SHORT, 1.0), timed(LONG, 1.3)) == ()


def test_small_times_and_other_kinds_of_scenario_are_not_compared():
    assert suspicious(timed(SHORT, 0.04), timed(LONG, 0.04)) == ()
    assert suspicious(timed(SHORT, 1.0), timed(OTHER, 1.0)) == ()


def test_what_did_not_pass_is_never_suspicious():
    failed = replace(
        evaluator().evaluate(source("right")), status=Status.INCORRECT, reason="wrong", geomean=None, timings=()
    )
    assert suspicions(failed, 0.001, 1.3, (SHORT,)) == ()
