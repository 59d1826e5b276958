"""When a candidate that is being timed is given up: only where no speedup that the roof allows could save it."""

import math
from dataclasses import replace

import pytest

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.race import Bar, raise_bar, reachable, require_reach
from tests.fitness.test_evaluator import evaluator, source, timing

NAMES = ("a", "b")


def timed(name, *, speedup=2.0, high=None, roof_ms=0.5):
    return replace(timing(name), speedup=speedup, speedup_high=high or speedup, roof_ms=roof_ms)


def passed(geomean, *timings):
    found = evaluator().evaluate(source("right"))
    return replace(found, geomean=geomean, timings=timings or (timed("a"), timed("b")))


def test_what_can_be_reached_is_the_mean_of_upper_ends_and_ceilings():
    bar = Bar(geomean=1.0, ceilings={"a": 9.0, "b": 8.0})
    assert reachable([timed("a", speedup=0.4, high=0.5)], NAMES, bar) == pytest.approx((0.5 * 8.0) ** 0.5)
    assert reachable([], NAMES, bar) == pytest.approx((9.0 * 8.0) ** 0.5)


def test_a_scenario_without_a_ceiling_keeps_everything_within_reach():
    bar = Bar(geomean=1e9, ceilings={"a": 1.0})
    assert reachable([timed("a", speedup=0.001)], NAMES, bar) == math.inf
    require_reach([timed("a", speedup=0.001)], NAMES, bar)


def test_only_what_is_out_of_reach_is_stopped_and_the_reason_says_by_how_much():
    bar = Bar(geomean=1.0, ceilings={"a": 4.0, "b": 4.0})
    require_reach([timed("a", speedup=0.25)], NAMES, bar)  # sqrt(0.25 * 4) is the bar itself
    with pytest.raises(CandidateFault) as stopped:
        require_reach([timed("a", speedup=0.2)], NAMES, bar)
    assert stopped.value.status is Status.STOPPED_EARLY
    assert stopped.value.reason == (
        "after 1 of 2 scenarios, speedup 0.200 on the last, its geometric mean can come to 0.894 at most; "
        "below 1.000 the rest is not measured"
    )


def test_what_is_timed_to_the_end_has_a_score_however_low():
    timings, bar = [timed("a", speedup=0.1), timed("b", speedup=0.1)], Bar(geomean=5.0, ceilings={})
    assert reachable(timings, NAMES, bar) < bar.geomean
    require_reach(timings, NAMES, bar)


def test_the_bar_is_the_last_that_would_survive():
    """Ceilings: the baseline took 2 ms at most, and the roof allows 0.5 ms and a tenth less."""
    bar = raise_bar([passed(1.0), passed(3.0), passed(2.0)], 2)
    assert bar == Bar(geomean=2.0, ceilings={"a": pytest.approx(4.4), "b": pytest.approx(4.4)})


def test_a_ceiling_leaves_room_for_the_slowest_call_of_the_baseline_in_any_evaluation():
    """3 ms and the tenth that a roof may be off; the median is 1 ms, and another evaluation saw 2 ms at most."""
    slow = replace(timed("a"), baseline_ms=(1.0, 3.0, 1.0), baseline_median_ms=1.0)
    usual = replace(timed("a"), baseline_ms=(2.0, 2.0, 1.0), baseline_median_ms=2.0)
    for order in ((slow, usual), (usual, slow)):
        bar = raise_bar([passed(1.0, each) for each in order], 1)
        assert bar.ceilings == {"a": pytest.approx(1.1 * 3.0 / 0.5)}


def test_there_is_no_bar_before_enough_have_passed_or_without_a_roof():
    failed = replace(passed(1.0), status=Status.INCORRECT, reason="wrong", geomean=None, timings=())
    assert raise_bar([passed(1.0), failed], 2) is None
    assert raise_bar([passed(1.0, timed("a", roof_ms=None))], 1) is None


def test_the_key_depends_on_the_bar_only_where_it_was_missed():
    plain = evaluator()
    low, high = (plain.against(Bar(geomean=geomean, ceilings={})) for geomean in (1.0, 2.0))
    text = source("right")
    assert plain.key(text) == low.key(text) == high.key(text) == plain.key(text, stopped_early=True)
    early = {each.key(text, stopped_early=True) for each in (plain, low, high)}
    assert len(early) == 3


def test_the_job_carries_the_bar_and_the_plain_evaluator_none():
    racing = evaluator()
    bar = Bar(geomean=1.5, ceilings={})
    racing.against(bar).evaluate(source("right"))
    racing.evaluate(source("right"))
    assert [job.bar for job in racing.worker.jobs] == [bar, None]
