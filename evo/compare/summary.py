"""A comparison worked out: what each run came to, how the groups stand, and how surely any two of them differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

from evo.compare.funnel import Funnel
from evo.compare.grouping import grouped
from evo.compare.outcomes import Arrival, Outcome, RunOutcome, Yardstick, outcome_of, yardstick
from evo.compare.runs import Run
from evo.compare.statistics import (
    MeanGain,
    Significance,
    holm,
    kaplan_meier_median,
    log_rank,
    mann_whitney,
    mean_gain,
    median_coverage,
    median_interval,
    runs_needed,
    sign_test,
    signed_rank,
    vargha_delaney,
)
from fitness.score import Interval

ALPHA = 0.05
_BOOTSTRAP_SEED = 20_000  # the same runs give the same intervals


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """The runs of a group taken together."""

    name: str
    runs: int
    median: float  # of the outcome
    interval: Interval | None
    coverage: float  # how surely the group's least and greatest enclose the median
    reached: int  # runs that reached the target
    evaluations_to_target: float | None  # Kaplan-Meier median; None where fewer than half reach it
    usd_to_target: float | None
    funnel: Funnel  # summed
    gains: Mapping[str, MeanGain]  # by layer, the children of all runs pooled
    lines_added: int
    lines_readded: int


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The second group's outcome minus the first's, over runs that share rng_seed and seed kernels."""

    pairs: int
    median_difference: float
    signed_rank: Significance | None  # None where all differences are zero
    signed_rank_holm: float | None
    sign_test: float | None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two groups set against each other. p with `holm` in its name is corrected over all pairs of groups."""

    first: str
    second: str
    mann_whitney: Significance
    mann_whitney_holm: float
    least_holm: float  # what Holm's correction leaves where every pair has the least p that it could have
    a12: float  # how probably a run of the first beats one of the second
    runs_needed: int | None  # in each group, for 80 % power at this A12 and ALPHA over the number of pairs
    log_rank: Significance | None  # of the evaluations to the target
    log_rank_holm: float | None
    paired: Paired | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is shown or written of a comparison."""

    by: str
    outcome: Outcome
    yardstick: Yardstick
    runs: tuple[RunOutcome, ...]
    groups: tuple[GroupOutcome, ...]
    pairs: tuple[Pair, ...]


def compare_runs(runs: Sequence[Run], *, by: str, outcome: Outcome, target: float | None) -> Comparison:
    """The comparison of at least two groups. Raises ConfigError where the runs cannot be compared so."""
    groups = grouped(runs, by)
    measure = yardstick(runs, target)
    outcomes = {label: [outcome_of(run, label, measure) for run in members] for label, members in groups.items()}
    values = {label: [each.value(outcome) for each in members] for label, members in outcomes.items()}
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    return Comparison(
        by=by,
        outcome=outcome,
        yardstick=measure,
        runs=tuple(each for members in outcomes.values() for each in members),
        groups=tuple(
            _group(label, outcomes[label], values[label], _pooled(members), rng) for label, members in groups.items()
        ),
        pairs=_pairs(groups, outcomes, values),
    )


def _pooled(runs: Sequence[Run]) -> dict[str, MeanGain]:
    layers = sorted({layer for run in runs for layer in run.gains})
    return {layer: mean_gain([gain for run in runs for gain in run.gains.get(layer, ())]) for layer in layers}


def _group(
    name: str, runs: Sequence[RunOutcome], values: Sequence[float], gains: Mapping[str, MeanGain],
    rng: np.random.Generator,
) -> GroupOutcome:  # fmt: skip
    arrivals = [run.evaluations_to_target for run in runs]
    return GroupOutcome(
        name=name,
        runs=len(runs),
        median=median(values),
        interval=median_interval(values, rng),
        coverage=median_coverage(len(values)),
        reached=sum(arrival.reached for arrival in arrivals),
        evaluations_to_target=_median_arrival(arrivals),
        usd_to_target=_median_arrival([run.usd_to_target for run in runs]),
        funnel=sum((run.funnel for run in runs), Funnel()),
        gains=gains,
        lines_added=sum(run.lines_added for run in runs),
        lines_readded=sum(run.lines_readded for run in runs),
    )


def _median_arrival(arrivals: Sequence[Arrival]) -> float | None:
    return kaplan_meier_median([each.value for each in arrivals], [each.reached for each in arrivals])


def _pairs(
    groups: Mapping[str, Sequence[Run]], outcomes: Mapping[str, Sequence[RunOutcome]],
    values: Mapping[str, Sequence[float]],
) -> tuple[Pair, ...]:  # fmt: skip
    names = list(combinations(groups, 2))
    ranks = [mann_whitney(values[first], values[second]) for first, second in names]
    logs = [_log_rank(outcomes[first], outcomes[second]) for first, second in names]
    differences = [
        _differences(groups[first], groups[second], values[first], values[second]) for first, second in names
    ]
    signed = [signed_rank(each) for each in differences]
    corrected = holm([rank.p for rank in ranks])
    least = holm([rank.least_p for rank in ranks])
    log_holm, signed_holm = _holm_of_some(logs), _holm_of_some(signed)
    return tuple(
        Pair(
            first=first,
            second=second,
            mann_whitney=ranks[place],
            mann_whitney_holm=corrected[place],
            least_holm=least[place],
            a12=(a12 := vargha_delaney(values[first], values[second])),
            runs_needed=runs_needed(a12, ALPHA / len(names)),
            log_rank=logs[place],
            log_rank_holm=log_holm[place],
            paired=_paired(differences[place], signed[place], signed_holm[place]),
        )
        for place, (first, second) in enumerate(names)
    )


def _log_rank(first: Sequence[RunOutcome], second: Sequence[RunOutcome]) -> Significance | None:
    arrivals = [run.evaluations_to_target for run in (*first, *second)]
    return log_rank([each.value for each in arrivals], [each.reached for each in arrivals], len(first))


def _differences(
    first: Sequence[Run], second: Sequence[Run], first_values: Sequence[float], second_values: Sequence[float]
) -> list[float]:
    """Second minus first, where each group has exactly one run of that rng_seed and those seed kernels."""
    sides = [_by_start(first, first_values), _by_start(second, second_values)]
    shared = [start for start in sides[0] if len(sides[0][start]) == len(sides[1].get(start, ())) == 1]
    return [sides[1][start][0] - sides[0][start][0] for start in shared]


def _by_start(runs: Sequence[Run], values: Sequence[float]) -> dict[tuple[object, ...], list[float]]:
    starts: dict[tuple[object, ...], list[float]] = {}
    for run, value in zip(runs, values, strict=True):
        starts.setdefault((run.settings.get("rng_seed"), *sorted(run.seeds)), []).append(value)
    return starts


def _holm_of_some(tests: Sequence[Significance | None]) -> list[float | None]:
    """Holm's correction over the tests that there are."""
    corrected = iter(holm([test.p for test in tests if test is not None]))
    return [None if test is None else next(corrected) for test in tests]


def _paired(differences: Sequence[float], test: Significance | None, corrected: float | None) -> Paired | None:
    if not differences:
        return None
    return Paired(
        pairs=len(differences),
        median_difference=median(differences),
        signed_rank=test,
        signed_rank_holm=corrected,
        sign_test=sign_test(differences),
    )
