"""Two styles pair by pair: who was ahead beyond noise, how far, and what the verdict says of it."""

from dataclasses import replace

import pytest
from small_shots import made

from evo.compare.shot_summary import compare_shots
from evo.compare.shot_words import shot_conclusions
from evo.compare.shots import Shot
from evo.compare.statistics import mean_gain
from evo.compare.style_pairs import StylePair


def only(*shots: Shot) -> StylePair:
    (pair,) = compare_shots(shots).pairs
    return pair


def test_pairs_are_counted_as_they_fell() -> None:
    shots = [
        made("question", "a", 1.2), made("imperative", "a", 1.1),
        made("question", "b", 0.9), made("imperative", "b", None),  # no right kernel is behind any
        made("question", "c", 1.0), made("imperative", "c", 1.0),
        made("question", "d", None), made("imperative", "d", None),
        made("question", "e", 1.5), made("imperative", "e", None, replied=False),  # no reply is no style's fault
        made("question", "a", 0.5, run="two"), made("imperative", "a", 0.6, run="two"),
    ]  # fmt: skip
    comparison = compare_shots(shots)
    (pair,) = comparison.pairs
    assert (pair.first, pair.second) == ("question", "imperative")
    assert (pair.pairs, pair.both_right, pair.second_ahead, pair.second_behind) == (5, 3, 1, 2)
    assert (pair.level, pair.both_failed) == (2, 1)
    assert pair.ratio is not None
    assert pair.ratio.mean == pytest.approx(((1.1 / 1.2) * 1.0 * (0.6 / 0.5)) ** (1 / 3))
    assert pair.ratio.count == 3
    assert pair.sign_test == pair.sign_test_holm == 1.0
    assert pair.least_p == 0.25
    question, imperative = comparison.styles
    assert (question.funnel.questions, question.funnel.replies, question.funnel.right) == (6, 6, 5)
    assert (imperative.funnel.questions, imperative.funnel.replies, imperative.funnel.right) == (6, 5, 3)
    assert imperative.gain is not None
    assert imperative.gain.mean == pytest.approx((1.1 * 1.0 * 0.6) ** (1 / 3))


def test_a_difference_within_the_noise_of_both_is_none() -> None:
    """The root of 0.03² + 0.04² is 0.05, and log 1.06 is 0.0583, log 1.05 0.0488."""
    shots = [
        made("question", "a", 1.0, noise=0.03), made("imperative", "a", 1.05, noise=0.04),
        made("question", "b", 1.0, noise=0.03), made("imperative", "b", 1.06, noise=0.04),
        made("question", "c", 1.06, noise=0.03), made("imperative", "c", 1.0, noise=0.04),
        made("question", "d", 1.0, noise=0.03), made("imperative", "d", None),
    ]  # fmt: skip
    pair = only(*shots)
    assert (pair.second_ahead, pair.second_behind, pair.level, pair.both_failed) == (1, 2, 1, 0)
    assert pair.sign_test == 1.0
    assert (pair.both_right, pair.median_ratio) == (3, pytest.approx(1.05))


def test_ratios_are_also_told_by_their_median_and_ranks_and_by_parent() -> None:
    """Logarithms of 2, 3, 4 and -1 in units: their ranks, positive 9 of 10, are so in 2 · 2 of 16 splits of signs."""
    ratios = {("a", "one"): 1.02, ("b", "one"): 1.03, ("a", "two"): 1.04, ("b", "two"): 0.99}
    shots = []
    for (parent, run), ratio in ratios.items():
        shots += [made("question", "q", 1.0, run=run, parent=parent), made("open", "q", ratio, run=run, parent=parent)]
    pair = only(*shots)
    assert pair.median_ratio == pytest.approx(1.025)
    assert pair.signed_rank is not None
    assert (pair.signed_rank.statistic, pair.signed_rank.p) == (9.0, 0.25)
    of_parents = mean_gain([(1.02 * 1.04) ** 0.5, (1.03 * 0.99) ** 0.5])
    assert pair.ratio_by_parent is not None
    assert (pair.ratio_by_parent.count, pair.ratio_by_parent.mean) == (2, pytest.approx(of_parents.mean))
    assert pair.ratio_by_parent.interval is not None
    assert of_parents.interval is not None
    assert pair.ratio_by_parent.interval.low == pytest.approx(of_parents.interval.low)


def test_the_pairs_needed_are_those_of_the_test_that_decides() -> None:
    """Ahead in 6 of 8: Noether's 32 at 0.05, and 40 with a fifth of the pairs level; at 0.05 / 2 it is 39 and 49."""
    gains = [1.1] * 6 + [0.9] * 2 + [1.0] * 2
    shots = [made("question", str(place), 1.0) for place in range(10)]
    shots += [made("imperative", str(place), gain) for place, gain in enumerate(gains)]
    pair = only(*shots)
    assert (pair.apart, pair.apart_needed, pair.pairs_needed) == (8, 32, 40)
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against imperative: no difference shown (sign test p = 0.289; of 10 pairs question ahead in 2, "
        "imperative in 6, level in 2; mean imperative / question, 95 %: 1.037 (0.976–1.101) n=10), which does not show "
        "that there is none; an effect as large as seen (6 of 8 ahead), which a small sample overstates, takes the "
        "sign test at 0.05 about 32 pairs not level, 40 with the level ones, for 80 % power"
    )
    more = [*shots, *(replace(shot, style="open") for shot in shots if shot.style == "imperative")]
    three = compare_shots(more)
    assert [(each.apart, each.apart_needed, each.pairs_needed) for each in three.pairs] == [
        (8, 39, 49), (8, 39, 49), (0, None, None),
    ]  # fmt: skip
    said, _, level = shot_conclusions(three)
    assert "(sign test p = 0.289, 0.578 after Holm's correction for 2 pairs of styles; of 10 pairs" in said
    assert "takes the sign test at 0.05 / 2 about 39 pairs not level, 49 with the level ones" in said
    assert level.startswith("imperative against open: neither was ahead in any pair (of 10 pairs imperative ahead in 0")


def test_few_pairs_level_pairs_and_failures_are_said() -> None:
    shots = [
        made("question", "a", 1.0), made("open", "a", 1.1), made("question", "b", 1.2), made("open", "b", 1.1),
        made("question", "c", None), made("open", "c", None),
    ]  # fmt: skip
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against open: too few pairs to say anything: with 2 pairs not level the least p is 0.5, above 0.05 "
        "(sign test p = 1; of 3 pairs question ahead in 1, open in 1, level in 1, both failed in 1 of these; mean open "
        "/ question, 95 %: 1.004 (0.315–3.198) n=2); as often ahead as behind, so no number of pairs follows"
    )


def test_a_style_that_is_better_is_called_so() -> None:
    shots = [made(style, str(place), gain) for place in range(6) for style, gain in (("question", 1.2), ("open", 1.1))]
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against open: question is better (sign test p = 0.0312; of 6 pairs question ahead in 6, open in 0, "
        "level in 0; mean open / question, 95 %: 0.917 (0.917–0.917) n=6)"
    )


def test_all_pairs_of_styles_are_corrected_together() -> None:
    shots = [
        made(style, f"q{number}", gain)
        for number in range(8)
        for style, gain in (("question", 1.2), ("open", 1.1), ("bare", 1.1))
    ]
    by_pair = {(pair.first, pair.second): pair for pair in compare_shots(shots).pairs}
    ahead = by_pair["question", "open"]
    assert ahead.sign_test == pytest.approx(2 / 256)
    assert ahead.sign_test_holm == pytest.approx(2 * 2 / 256)  # of the two in which a style was ever ahead
    assert by_pair["open", "bare"].sign_test is None
    assert by_pair["open", "bare"].ratio is not None
