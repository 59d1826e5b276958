"""The tests and estimates of a comparison. Pure: numbers go in, and every generator of random numbers is passed in.

Small samples get exact permutation tests, ties included; two-sided p-values throughout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fitness.score import Interval

Numbers = NDArray[np.float64]

EXACT_SPLITS = 20_000  # up to so many ways to share out the values, all of them are gone through: 8 against 8 are 12870
_EXACT_SIGNED = 14  # differences, for the same reason
_EFFECTS = ((0.21, "large"), (0.14, "medium"), (0.06, "small"))
_RESAMPLES = 9_999
_TOLERANCE = 1e-9  # sums of ranks that differ by rounding are equal


@dataclass(frozen=True, kw_only=True)
class Significance:
    """A two-sided test's statistic and p, and the least p that samples of these sizes and ties could have given."""

    statistic: float
    p: float
    least_p: float
    exact: bool


@dataclass(frozen=True, kw_only=True)
class MeanGain:
    """A geometric mean of ratios with Student's 95 % interval on their logarithms, which needs two of them."""

    count: int
    mean: float
    interval: Interval | None


def median_interval(values: Sequence[float], rng: np.random.Generator) -> Interval | None:
    """The percentile bootstrap's interval of the median; None below two values.

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. `median_coverage` bounds what it holds.
    """
    if len(values) < 2:
        return None
    drawn = rng.choice(np.asarray(values, dtype=float), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return Interval(low=float(low), high=float(high))


def median_coverage(count: int) -> float:
    """How surely the least and the greatest of `count` values enclose the median: 1 − 2^(1 − count).

    No interval between the two holds it more surely, whichever way it was made.
    """
    return 1 - 2.0 ** (1 - count)


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> Significance:
    """Whether the one sample's values tend to be greater. The statistic is U: pairs won by the first, ties a half.

    Exact over all splits of the midranks where these are few; beyond that scipy's, exact without ties where one sample
    has up to 8, else normal with the ties' correction. Mann and Whitney, Ann. Math. Stat. 18 (1947).
    """
    pooled = np.asarray([*first, *second], dtype=float)
    ranks = stats.rankdata(pooled)
    u = float(ranks[: len(first)].sum()) - len(first) * (len(first) + 1) / 2
    exact = _permutation(ranks, len(first))
    if exact is not None:
        return Significance(statistic=u, p=exact[0], least_p=exact[1], exact=True)
    if len(set(pooled.tolist())) == 1:
        return Significance(statistic=u, p=1.0, least_p=1.0, exact=True)
    p = float(stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)
    untied = len(set(pooled.tolist())) == len(pooled)
    least = least_p(len(first), len(second))
    return Significance(statistic=u, p=p, least_p=least, exact=untied and min(len(first), len(second)) <= 8)


def vargha_delaney(first: Sequence[float], second: Sequence[float]) -> float:
    """A12: how probably a value of the first exceeds one of the second, ties a half. 0.5 is no effect.

    Vargha and Delaney, J. Educ. Behav. Stat. 25 (2000).
    """
    difference = np.subtract.outer(np.asarray(first, dtype=float), np.asarray(second, dtype=float))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def effect_size(a12: float) -> str:
    """In words, by the thresholds of Vargha and Delaney (2000): 0.56, 0.64 and 0.71 on either side of 0.5."""
    distance = abs(a12 - 0.5) + 1e-12
    return next((word for bound, word in _EFFECTS if distance >= bound), "negligible")


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p corrected for all of them, in their order. Holm, Scand. J. Statist. 6 (1979)."""
    corrected, running = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = running
    return corrected


def runs_needed(a12: float, alpha: float, power: float = 0.8) -> int | None:
    """Runs in each of two groups for the Mann-Whitney test to find an effect of this A12 so often; None for no effect.

    Noether, J. Am. Stat. Assoc. 82 (1987), and never fewer than an exact test needs to reach `alpha` at all.
    """
    if a12 == 0.5:
        return None
    quantiles = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    return max(math.ceil(quantiles**2 / (6 * (a12 - 0.5) ** 2)), least_runs(alpha))


def least_p(first: int, second: int) -> float:
    """The least p that an exact Mann-Whitney test of samples of these sizes can give, where no values are equal."""
    return min(1.0, 2 / math.comb(first + second, first))


def least_runs(alpha: float) -> int:
    """The fewest runs in each of two groups with which an exact Mann-Whitney test can reach `alpha`."""
    count = 1
    while least_p(count, count) > alpha:
        count += 1
    return count


def signed_rank(differences: Sequence[float]) -> Significance | None:
    """Wilcoxon's signed-rank test of paired differences, zeros left out; None where nothing is left.

    The statistic is the rank sum of the positive ones. Exact, ties included, up to 14 of them; scipy's beyond.
    Wilcoxon, Biometrics Bulletin 1 (1945).
    """
    moved = np.asarray([each for each in differences if each != 0], dtype=float)
    if not len(moved):
        return None
    ranks = stats.rankdata(np.abs(moved))
    statistic = float(ranks[moved > 0].sum())
    if len(moved) > _EXACT_SIGNED:
        p = float(stats.wilcoxon(moved).pvalue)
        return Significance(statistic=statistic, p=p, least_p=2.0 ** (1 - len(moved)), exact=False)
    signs = (np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1
    distances = np.abs(signs @ ranks - ranks.sum() / 2)
    p, least = _share_beyond(distances, abs(statistic - float(ranks.sum()) / 2))
    return Significance(statistic=statistic, p=p, least_p=least, exact=True)


def sign_test(differences: Sequence[float]) -> float | None:
    """p of the binomial test that as many differences are above zero as below; None where all are zero."""
    above, below = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    return float(stats.binomtest(above, above + below).pvalue) if above + below else None


def least_sign_p(apart: int) -> float:
    """The least p that a sign test of so many differences other than zero can give."""
    return min(1.0, 2.0 ** (1 - apart))


def signs_needed(share: float, alpha: float, power: float = 0.8) -> int | None:
    """Differences other than zero for the sign test to find such a share above zero so often; None for a half.

    Noether, J. Am. Stat. Assoc. 82 (1987), a normal approximation, and never fewer than can reach `alpha` at all.
    """
    if share == 0.5:
        return None
    quantiles = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    least = math.ceil(1 - math.log2(alpha))
    return max(math.ceil(quantiles**2 / (4 * (share - 0.5) ** 2)), least)


def log_rank(times: Sequence[float], reached: Sequence[bool], first: int) -> Significance | None:
    """Whether the first `first` of these times to a target differ from the rest; None where none reached it.

    A time that is not `reached` is censored: it is known only to be longer. The statistic is observed minus expected
    arrivals of the first. Exact over all splits where these are few, by the scores of Peto and Peto, J. R. Stat. Soc.
    A 135 (1972), which supposes that both groups were given up alike; scipy's normal approximation beyond.
    """
    if not any(reached):
        return None
    when, event = np.asarray(times, dtype=float), np.asarray(reached, dtype=bool)
    hazard = {
        moment: float((event & (when == moment)).sum() / (when >= moment).sum()) for moment in set(when[event].tolist())
    }
    scores = event - np.asarray([math.fsum(h for moment, h in hazard.items() if moment <= time) for time in when])
    statistic = float(scores[:first].sum())
    exact = _permutation(scores, first)
    if exact is not None:
        return Significance(statistic=statistic, p=exact[0], least_p=exact[1], exact=True)
    sides = [
        stats.CensoredData(uncensored=when[part][event[part]], right=when[part][~event[part]])
        for part in (slice(None, first), slice(first, None))
    ]
    p = float(stats.logrank(*sides).pvalue)
    return Significance(statistic=statistic, p=p, least_p=least_p(first, len(when) - first), exact=False)


def kaplan_meier_median(times: Sequence[float], reached: Sequence[bool]) -> float | None:
    """The first time by which half have arrived, by Kaplan and Meier's estimate; None where that is never.

    Kaplan and Meier, J. Am. Stat. Assoc. 53 (1958).
    """
    if not any(reached):
        return None
    when, event = np.asarray(times, dtype=float), np.asarray(reached, dtype=bool)
    left = stats.ecdf(stats.CensoredData(uncensored=when[event], right=when[~event])).sf
    below = left.quantiles[left.probabilities <= 0.5 + _TOLERANCE]
    return float(below[0]) if len(below) else None


def mean_gain(gains: Sequence[float]) -> MeanGain:
    """The geometric mean of positive ratios. Raises ValueError where there is none."""
    if not gains:
        raise ValueError("mean_gain: no gain; expected at least one ratio")
    logs = np.log(np.asarray(gains, dtype=float))
    mean, interval = float(logs.mean()), None
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1)) / math.sqrt(len(logs))
        interval = Interval(low=math.exp(mean - half), high=math.exp(min(mean + half, 700.0)))
    return MeanGain(count=len(logs), mean=math.exp(mean), interval=interval)


def _permutation(scores: Numbers, first: int) -> tuple[float, float] | None:
    """p of the first scores' sum among those of all splits, and the least p that any split has; None for too many."""
    if math.comb(len(scores), first) > EXACT_SPLITS:
        return None
    splits = np.asarray(list(combinations(range(len(scores)), first)))
    distances = np.abs(scores[splits].sum(axis=1) - first * scores.mean())
    return _share_beyond(distances, float(distances[0]))  # combinations() begins with the split as it is


def _share_beyond(distances: Numbers, seen: float) -> tuple[float, float]:
    """The shares of distances that are at least `seen`, and at least the greatest."""
    bounds = (seen, float(distances.max()))
    p, least = (float(np.mean(distances >= bound - _TOLERANCE)) for bound in bounds)
    return p, least
