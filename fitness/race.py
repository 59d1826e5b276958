"""Racing: whether a candidate that is being timed can still reach a bar. It stops early only where it cannot.

Nobody knows how fast it would be on the scenarios to come, but the device's roof says how fast it may be at most. The
geometric mean that this leaves is an upper bound, so what is stopped could not have been selected.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fitness.evaluation import Evaluation, ScenarioTiming, Status
from fitness.faults import CandidateFault
from fitness.roof import SLACK


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The geometric mean to be reached, and the greatest speedup that the roof leaves room for, by scenario."""

    geomean: float
    ceilings: Mapping[str, float]


def raise_bar(evaluations: Sequence[Evaluation], place: int) -> Bar | None:
    """The bar at the geometric mean of the `place`-th best; None where fewer passed, or no roof is known."""
    passed = [each for each in evaluations if each.geomean is not None]
    if len(passed) < place:
        return None
    geomeans = sorted((each.geomean or 0.0 for each in passed), reverse=True)
    ceilings: dict[str, float] = {}
    for timing in (timing for each in passed for timing in each.timings):
        if timing.roof_ms is None:
            return None
        ceiling = SLACK * max(timing.baseline_ms) / timing.roof_ms  # its slowest call, to be on the safe side
        ceilings[timing.scenario] = max(ceiling, ceilings.get(timing.scenario, 0.0))
    return Bar(geomean=geomeans[place - 1], ceilings=ceilings) if ceilings else None


def reachable(timings: Sequence[ScenarioTiming], scenarios: Sequence[str], bar: Bar) -> float:
    """The geometric mean that no candidate with these timings exceeds; infinite where a ceiling is not known.

    What is timed counts with the upper end of its interval, what is not with its ceiling.
    """
    known = {timing.scenario: timing.speedup_high for timing in timings}
    highest = [known.get(name, bar.ceilings.get(name, math.inf)) for name in scenarios]
    return math.exp(math.fsum(map(math.log, highest)) / len(highest))


def require_reach(timings: Sequence[ScenarioTiming], scenarios: Sequence[str], bar: Bar) -> None:
    """Raise CandidateFault(STOPPED_EARLY) where the bar is out of reach and a scenario is left to be timed."""
    most = reachable(timings, scenarios, bar)
    if len(timings) < len(scenarios) and most < bar.geomean:
        raise CandidateFault(
            Status.STOPPED_EARLY,
            f"after {len(timings)} of {len(scenarios)} scenarios, speedup {timings[-1].speedup:.3f} on the last, its "
            f"geometric mean can come to {most:.3f} at most; below {bar.geomean:.3f} the rest is not measured",
        )
