"""The score: the geometric mean of the speedups over every scenario of a suite, or nothing. Pure figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fitness.evaluation import ScenarioTiming
from fitness.scenario import Suite

_TAILS = (0.025, 0.975)
_DRAWS_ON_THE_WAY = 200  # to see whether an interval is narrow yet; the one that is recorded is drawn anew


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """A suite's geometric mean of the speedups, and the 95 % interval that the spread of the calls gives it."""

    geomean: float
    interval: Interval


def score_suite(timings: Sequence[ScenarioTiming], suite: Suite, draws: int) -> Score:
    """The score of a suite that is timed in full. Raises ValueError where a scenario is missing or a time is not one.

    The interval comes from `draws` resamplings of the pairs of calls of each scenario.
    """
    if len(timings) != len(suite.scenarios):
        raise ValueError(f"score: {len(timings)} timings for the {len(suite.scenarios)} scenarios of {suite.name}")
    speedups = {timing.scenario: timing.speedup for timing in timings}
    geomean = geometric_mean(speedups, [scenario.name for scenario in suite.scenarios])
    rng = np.random.default_rng(0)  # equal timings have equal intervals
    logs = [_resampled_log_speedups(timing.candidate_ms, timing.baseline_ms, draws, rng) for timing in timings]
    return Score(geomean=geomean, interval=_interval(np.mean(logs, axis=0)))


def geometric_mean(speedups: Mapping[str, float], scenarios: Sequence[str]) -> float:
    """exp(mean(log speedup)) over exactly these scenarios.

    Raises ValueError where one is missing or was not asked for, or a speedup is no positive finite number: a mean
    over the rest would reward dropping the hard ones.
    """
    if not scenarios or set(speedups) != set(scenarios) or len(set(scenarios)) != len(scenarios):
        raise ValueError(f"score: speedups of {sorted(speedups)}; expected those of {sorted(scenarios)}, each once")
    for scenario, speedup in speedups.items():
        if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 0 < speedup < math.inf:
            raise ValueError(f"score: the speedup on {scenario} is {speedup!r}; expected a positive finite number")
    return math.exp(math.fsum(math.log(speedup) for speedup in speedups.values()) / len(speedups))


def speedup_interval(
    candidate_ms: Sequence[float], baseline_ms: Sequence[float], draws: int, rng: np.random.Generator
) -> Interval:
    """Where median(baseline) / median(candidate) lies when the pairs of calls are drawn anew, with replacement."""
    return _interval(_resampled_log_speedups(candidate_ms, baseline_ms, draws, rng))


def precise_enough(candidate_ms: Sequence[float], baseline_ms: Sequence[float], half_width: float) -> bool:
    """Whether half the interval of the speedup is below this share of it; never for 0, nor from fewer than 3 calls."""
    if half_width <= 0 or len(candidate_ms) < 3:
        return False
    found = speedup_interval(candidate_ms, baseline_ms, _DRAWS_ON_THE_WAY, np.random.default_rng(len(candidate_ms)))
    return math.log(found.high / found.low) / 2 < half_width


def _resampled_log_speedups(
    candidate_ms: Sequence[float], baseline_ms: Sequence[float], draws: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    calls = len(candidate_ms)
    chosen = rng.integers(calls, size=(draws, calls))
    candidate, baseline = (np.median(np.asarray(times)[chosen], axis=1) for times in (candidate_ms, baseline_ms))
    logs: npt.NDArray[np.float64] = np.log(baseline / candidate)
    return logs


def _interval(log_speedups: npt.NDArray[np.float64]) -> Interval:
    low, high = np.exp(np.quantile(log_speedups, _TAILS))
    return Interval(low=float(low), high=float(high))
