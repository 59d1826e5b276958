"""The geometric mean, what makes it undefined, and the interval around it."""

import math

import numpy as np
import pytest

from fitness.evaluation import ScenarioTiming
from fitness.scenario import Suite
from fitness.score import geometric_mean, score_suite, speedup_interval
from tests.fitness.fake_device import scenario

ONE, OTHER = scenario(), scenario(seqlen_k=128)
SUITE = Suite(name="two", scenarios=(ONE, OTHER))


def timing(shape, candidate_ms, baseline_ms):
    candidate, baseline = float(np.median(candidate_ms)), float(np.median(baseline_ms))
    return ScenarioTiming(
        scenario=shape.name, candidate_ms=tuple(candidate_ms), baseline_ms=tuple(baseline_ms),
        candidate_median_ms=candidate, baseline_median_ms=baseline, speedup=baseline / candidate, speedup_low=1.0,
        speedup_high=1.0, tflops=1.0, baseline_difference_max=0.0, baseline_difference_rms=0.0,
    )  # fmt: skip


def test_it_is_the_geometric_mean():
    assert geometric_mean({"a": 2.0, "b": 0.5}, ["a", "b"]) == pytest.approx(1.0)
    assert geometric_mean({"a": 1.0, "b": 2.0, "c": 4.0}, ["c", "a", "b"]) == pytest.approx(2.0)


def test_extreme_speedups_do_not_overflow():
    assert geometric_mean({"a": 1e300, "b": 1e300}, ["a", "b"]) == pytest.approx(1e300)
    assert geometric_mean({"a": 1e6, "b": 1e-6}, ["a", "b"]) == pytest.approx(1.0)


@pytest.mark.parametrize("missing", [{}, {"a": 2.0}, {"a": 2.0, "b": 1.0, "c": 9.0}, {"a": 2.0, "c": 1.0}])
def test_it_is_undefined_over_any_other_set_of_scenarios(missing):
    with pytest.raises(ValueError, match="expected those of"):
        geometric_mean(missing, ["a", "b"])


def test_it_is_undefined_over_nothing_and_over_a_scenario_listed_twice():
    with pytest.raises(ValueError, match="expected those of"):
        geometric_mean({}, [])
    with pytest.raises(ValueError, match="each once"):
        geometric_mean({"a": 1.0}, ["a", "a"])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True, "PASSED", None])
def test_it_is_undefined_where_a_speedup_is_none(value):
    with pytest.raises(ValueError, match="the speedup on b"):
        geometric_mean({"a": 2.0, "b": value}, ["a", "b"])


def test_a_suite_has_a_score_and_an_interval_about_it():
    timings = [timing(ONE, [1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.9, 2.0, 2.1]), timing(OTHER, [1.0] * 5, [0.5] * 5)]
    score = score_suite(timings, SUITE, 500)
    assert score.geomean == pytest.approx(1.0)
    assert 0.9 < score.interval.low <= 1.0 < score.interval.high < 1.1
    assert score == score_suite(timings, SUITE, 500)


def test_a_suite_with_a_missing_scenario_has_none():
    with pytest.raises(ValueError, match="1 timings for the 2 scenarios"):
        score_suite([timing(ONE, [1.0], [2.0])], SUITE, 10)
    with pytest.raises(ValueError, match="expected those of"):
        score_suite([timing(ONE, [1.0], [2.0])] * 2, SUITE, 10)


def test_equal_times_leave_no_room_for_doubt():
    interval = speedup_interval([2.0] * 7, [3.0] * 7, 100, np.random.default_rng(1))
    assert (interval.low, interval.high) == pytest.approx((1.5, 1.5))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        candidate, baseline = 1.0 + 0.1 * rng.standard_normal((2, 21))
        interval = speedup_interval(candidate, 1.2 * baseline, 300, rng)
        covered += interval.low <= 1.2 <= interval.high
    assert 180 <= covered <= 200


def test_a_drift_that_both_share_does_not_widen_the_interval():
    drift = np.linspace(1.0, 2.0, 21)
    interval = speedup_interval(drift, 1.3 * drift, 300, np.random.default_rng(1))
    assert (interval.low, interval.high) == pytest.approx((1.3, 1.3))
