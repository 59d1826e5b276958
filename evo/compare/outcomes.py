"""What each run came to, measured alike: at equal evaluations, at equal spend, and on the way to one target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from evo.compare.funnel import Funnel
from evo.compare.runs import Measured, Run
from evo.compare.statistics import MeanGain, mean_gain
from evo.settings import ConfigError


class Outcome(StrEnum):
    """The one number of a run that groups are compared by. Greater is better."""

    BEST = "best"  # over the whole run, however long it was
    EQUAL_EVALUATIONS = "equal_evaluations"  # after as many as the shortest run made
    EQUAL_SPEND = "equal_spend"  # after as many USD as the cheapest run spent
    AREA = "area"  # under the best-so-far curve up to equal evaluations


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What makes runs of different lengths comparable."""

    evaluations: int  # the fewest that a run made
    spend_usd: float | None  # the least that a run spent; None where one spent nothing
    target: float  # a geomean to reach
    top: float  # the best of all runs: the area's unit


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """When the target was reached, or, censored, up to where it was not."""

    value: float
    reached: bool


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """A run in numbers. Geomeans are 0.0 as long as nothing passed."""

    name: str
    group: str
    offline: bool  # no language model answered
    evaluations: int
    spend_usd: float
    best: float
    equal_evaluations: float
    equal_spend: float | None
    area: float  # mean of the best so far over the common evaluations, as a share of the best of all runs
    evaluations_to_target: Arrival
    usd_to_target: Arrival
    funnel: Funnel
    unfinished: int
    gains: Mapping[str, MeanGain]  # by the question's layer
    lines_added: int
    lines_readded: int

    def value(self, outcome: Outcome) -> float:
        """The number that groups are compared by. Raises ConfigError where a run has none."""
        value: float | None = getattr(self, outcome)
        if value is None:
            raise ConfigError(f"outcome={outcome}: a run that spent nothing is among these; choose another outcome")
        return value


def yardstick(runs: Sequence[Run], target: float | None) -> Yardstick:
    """The common measure of these runs; the default target is the least best among the runs in which anything passed.

    Raises ConfigError where nothing passed in any run.
    """
    bests = [best for best in (best_so_far(run.measured)[-1] for run in runs) if best > 0]
    if not bests:
        raise ConfigError("compare: no candidate passed in any of these runs; there is nothing to compare")
    spend = min(run.spend_usd for run in runs)
    return Yardstick(
        evaluations=min(len(run.measured) for run in runs),
        spend_usd=spend if spend > 0 else None,
        target=min(bests) if target is None else target,
        top=max(bests),
    )


def outcome_of(run: Run, group: str, measure: Yardstick) -> RunOutcome:
    """What a run came to by the common measure."""
    curve = best_so_far(run.measured)
    common = curve[: measure.evaluations]
    arrival = next((place for place, best in enumerate(curve) if best >= measure.target), None)
    reached = arrival is not None
    return RunOutcome(
        name=run.name,
        group=group,
        offline=run.offline,
        evaluations=len(curve),
        spend_usd=run.spend_usd,
        best=curve[-1],
        equal_evaluations=common[-1],
        equal_spend=None if measure.spend_usd is None else _best_for(run.measured, measure.spend_usd),
        area=sum(common) / len(common) / measure.top,
        evaluations_to_target=Arrival(value=len(curve) if arrival is None else arrival + 1, reached=reached),
        usd_to_target=Arrival(
            value=run.spend_usd if arrival is None else run.measured[arrival].spent_usd, reached=reached
        ),
        funnel=run.funnel,
        unfinished=run.unfinished,
        gains={layer: mean_gain(gains) for layer, gains in run.gains.items()},
        lines_added=run.readded.added,
        lines_readded=run.readded.readded,
    )


def best_so_far(measured: Sequence[Measured]) -> list[float]:
    """The best geomean after each evaluation."""
    return list(accumulate((each.geomean for each in measured), max))


def _best_for(measured: Sequence[Measured], usd: float) -> float:
    return max((each.geomean for each in measured if each.spent_usd <= usd), default=0.0)
