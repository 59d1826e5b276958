"""Two styles set against each other: the same questions about the same parents, pair by pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from evo.compare.shots import Shot
from evo.compare.statistics import (
    MeanGain,
    Significance,
    holm,
    least_sign_p,
    mean_gain,
    sign_test,
    signed_rank,
    signs_needed,
)
from evo.compare.summary import ALPHA
from evo.noise import beyond_noise


@dataclass(frozen=True, kw_only=True)
class StylePair:
    """Two styles over the pairs that both got a reply to; ratios are the second's speed over the first's."""

    first: str
    second: str
    pairs: int
    second_ahead: int  # beyond_noise in evo/noise.py; a reply without a right kernel is behind any with one
    second_behind: int
    level: int  # within that noise, or both failed
    both_failed: int
    sign_test: float | None  # over the pairs that are not level; None where all are
    sign_test_holm: float | None
    least_p: float | None  # the least p that so many pairs that are not level could give, corrected likewise
    apart_needed: int | None  # pairs that are not level, for 80 % power of that test at the share seen ahead
    pairs_needed: int | None  # the same with as many level ones among them as were seen
    both_right: int
    ratio: MeanGain | None  # where both are right
    ratio_by_parent: MeanGain | None  # the same of parents' means, so `count` is that of parents
    median_ratio: float | None
    signed_rank: Significance | None  # of the ratios' logarithms

    @property
    def apart(self) -> int:
        """Pairs that are not level."""
        return self.second_ahead + self.second_behind


def style_pairs(shots: Sequence[Shot], styles: Sequence[str]) -> tuple[StylePair, ...]:
    """Each two of these styles, corrected for all of them."""
    return _corrected([_pair(shots, first, second) for first, second in combinations(styles, 2)])


def _pair(shots: Sequence[Shot], first: str, second: str) -> StylePair:
    replied = [shot for shot in shots if shot.funnel.replies]
    sides = [{shot.pair: shot for shot in replied if shot.style == style} for style in (first, second)]
    shared = [(sides[0][pair], sides[1][pair]) for pair in sides[0] if pair in sides[1]]
    signs = [_sign(one, other) for one, other in shared]
    ratios = [(one.parent, other.gain / one.gain) for one, other in shared if one.gain and other.gain]
    values = [ratio for _, ratio in ratios]
    return StylePair(
        first=first,
        second=second,
        pairs=len(shared),
        second_ahead=signs.count(1),
        second_behind=signs.count(-1),
        level=signs.count(0),
        both_failed=sum(one.gain is None and other.gain is None for one, other in shared),
        sign_test=sign_test(signs),
        sign_test_holm=None,
        least_p=None,
        apart_needed=None,
        pairs_needed=None,
        both_right=len(ratios),
        ratio=mean_gain(values) if values else None,
        ratio_by_parent=mean_gain(_by_parent(ratios)) if values else None,
        median_ratio=median(values) if values else None,
        signed_rank=signed_rank([math.log(ratio) for ratio in values]),
    )


def _sign(one: Shot, other: Shot) -> int:
    """1 where the other is ahead, -1 where it is behind, 0 where neither is."""
    if one.gain is None or other.gain is None:
        return int(other.gain is not None) - int(one.gain is not None)
    ratio = other.gain / one.gain
    if not beyond_noise(ratio, one.noise, other.noise):
        return 0
    return 1 if ratio > 1 else -1


def _by_parent(ratios: Sequence[tuple[str, float]]) -> list[float]:
    """The geometric mean of each parent's ratios. A parent is one in however many runs it was asked about."""
    parents = dict.fromkeys(parent for parent, _ in ratios)
    return [mean_gain([ratio for owner, ratio in ratios if owner == parent]).mean for parent in parents]


def _corrected(pairs: Sequence[StylePair]) -> tuple[StylePair, ...]:
    """The pairs with Holm's correction over those that are not all level, and what its strictest step would need."""
    p = iter(holm([pair.sign_test for pair in pairs if pair.sign_test is not None]))
    least = iter(holm([least_sign_p(pair.apart) for pair in pairs if pair.apart]))
    alpha = ALPHA / max(1, sum(1 for pair in pairs if pair.apart))
    return tuple(
        replace(_with_need(pair, alpha), sign_test_holm=next(p), least_p=next(least)) if pair.apart else pair
        for pair in pairs
    )


def _with_need(pair: StylePair, alpha: float) -> StylePair:
    needed = signs_needed(pair.second_ahead / pair.apart, alpha)
    total = None if needed is None else math.ceil(needed * pair.pairs / pair.apart)
    return replace(pair, apart_needed=needed, pairs_needed=total)
