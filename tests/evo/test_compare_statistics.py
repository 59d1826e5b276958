"""The statistics of a comparison against values worked out by hand, against scipy, and under a null hypothesis."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from evo.compare.statistics import (
    effect_size,
    holm,
    kaplan_meier_median,
    least_p,
    least_runs,
    least_sign_p,
    log_rank,
    mann_whitney,
    mean_gain,
    median_coverage,
    median_interval,
    runs_needed,
    sign_test,
    signed_rank,
    signs_needed,
    vargha_delaney,
)


def test_mann_whitney_of_two_samples_apart() -> None:
    """Of the 20 ways to split six values, one is as extreme on either side."""
    test = mann_whitney([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert (test.statistic, test.p, test.least_p, test.exact) == (9.0, pytest.approx(0.1), pytest.approx(0.1), True)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 6), (3, 5), (8, 8), (7, 30), (12, 15)])
def test_mann_whitney_is_scipys_without_ties(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    first, second = rng.normal(size=sizes[0]).tolist(), rng.normal(0.5, size=sizes[1]).tolist()
    method = "exact" if min(sizes) <= 8 else "asymptotic"
    expected = stats.mannwhitneyu(first, second, method=method)
    test = mann_whitney(first, second)
    assert test.statistic == expected.statistic
    assert test.p == pytest.approx(expected.pvalue)
    assert test.exact == (method == "exact")


def test_mann_whitney_with_ties_goes_through_all_splits() -> None:
    """Midranks 1.5 1.5 | 3.5 3.5 5: sums of two of them, as far from the mean of 6 as 3 is: 3, and none above."""
    test = mann_whitney([1.0, 1.0], [2.0, 2.0, 3.0])
    sums = [sum(pair) for pair in combinations((1.5, 1.5, 3.5, 3.5, 5.0), 2)]
    assert test.p == pytest.approx(sum(abs(each - 6) >= 3 for each in sums) / 10)
    assert test.p == pytest.approx(0.1)
    assert test.statistic == 0.0


def test_mann_whitney_of_values_that_are_all_alike_shows_nothing() -> None:
    assert (mann_whitney([1.0] * 3, [1.0] * 4).p, mann_whitney([1.0] * 30, [1.0] * 40).p) == (1.0, 1.0)
    assert mann_whitney([1.0] * 3, [1.0] * 4).least_p == 1.0


def test_under_a_null_hypothesis_it_errs_no_oftener_than_it_says() -> None:
    """500 comparisons of 5 with 6 runs, a third of them with ties: at most 5 % and two standard errors below 0.05."""
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(500, 11))
    drawn[::3] = np.round(drawn[::3], 1)
    errors = sum(mann_whitney(row[:5].tolist(), row[5:].tolist()).p <= 0.05 for row in drawn)
    assert errors / 500 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 500)


def test_under_a_null_hypothesis_censored_times_err_no_oftener_either() -> None:
    rng = np.random.default_rng(8)
    times, limits = rng.exponential(10, size=(500, 9)), 15.0
    errors = 0
    for row in times:
        test = log_rank(np.minimum(row, limits).tolist(), (row <= limits).tolist(), 4)
        errors += test is not None and test.p <= 0.05
    assert errors / 500 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 500)


def test_a12_counts_ties_by_halves() -> None:
    assert vargha_delaney([1.0, 2.0], [1.0, 3.0]) == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    assert vargha_delaney([2.0], [2.0]) == 0.5
    assert vargha_delaney([3.0, 4.0], [1.0]) == 1.0


@pytest.mark.parametrize(
    ("a12", "word"),
    [(0.5, "negligible"), (0.55, "negligible"), (0.56, "small"), (0.36, "medium"), (0.71, "large"), (0.0, "large")],
)
def test_effects_are_named_by_the_published_thresholds(a12: float, word: str) -> None:
    assert effect_size(a12) == word


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_signed_rank_by_hand_and_by_scipy() -> None:
    """Of the 2^4 signs of four differences one has all above, one all below."""
    test = signed_rank([1.0, 2.0, 3.0, 4.0, 0.0])
    assert test is not None
    assert (test.statistic, test.p, test.least_p) == (10.0, pytest.approx(0.125), pytest.approx(0.125))
    assert signed_rank([0.0, 0.0]) is None
    for count in (6, 20):
        differences = np.random.default_rng(count).normal(0.3, size=count).tolist()
        found = signed_rank(differences)
        assert found is not None
        assert found.p == pytest.approx(stats.wilcoxon(differences).pvalue)


def test_sign_test_leaves_out_zeros() -> None:
    assert sign_test([1.0, 2.0, 3.0, 0.0]) == pytest.approx(0.25)
    assert sign_test([0.0]) is None


def test_kaplan_meier_by_hand() -> None:
    """At 2 one of four arrives: 3/4 left; one is censored at 3; at 5 one of two: 3/8, which is half or less."""
    assert kaplan_meier_median([2.0, 3.0, 5.0, 9.0], [True, False, True, False]) == 5.0
    assert kaplan_meier_median([2.0, 3.0, 4.0], [True, False, False]) is None
    assert kaplan_meier_median([2.0, 3.0], [False, False]) is None
    assert kaplan_meier_median([4.0], [True]) == 4.0


def test_log_rank_counts_arrivals_beyond_those_expected() -> None:
    """At 1, 2, 3 the first has 3/6, 2/5, 1/4 of those under way; it has 3 arrivals. The rest is censored at 9."""
    times, reached = [1.0, 2.0, 3.0, 9.0, 9.0, 9.0], [True, True, True, False, False, False]
    test = log_rank(times, reached, 3)
    assert test is not None
    assert test.statistic == pytest.approx(3 - (1 / 2 + 2 / 5 + 1 / 4))
    assert test.p == pytest.approx(2 / 20)
    assert log_rank(times, [False] * 6, 3) is None


def test_log_rank_of_many_is_scipys() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.exponential(1.0, 20), rng.exponential(2.0, 25)
    times = np.minimum(np.concatenate([first, second]), 2.0)
    reached = np.concatenate([first, second]) <= 2.0
    sides = [
        stats.CensoredData(uncensored=times[part][reached[part]], right=times[part][~reached[part]])
        for part in (slice(20), slice(20, None))
    ]
    test = log_rank(times.tolist(), reached.tolist(), 20)
    assert test is not None
    assert (test.exact, test.p) == (False, pytest.approx(stats.logrank(*sides).pvalue))


def test_log_rank_of_one_run_beside_others() -> None:
    test = log_rank([1.0, 5.0, 5.0], [True, False, False], 1)
    assert test is not None
    assert test.p == pytest.approx(1 / 3)


def test_the_bootstrap_is_repeatable_and_stays_within_the_values() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    one, other = (median_interval(values, np.random.default_rng(1)) for _ in range(2))
    assert one == other
    assert one is not None
    assert 1.0 <= one.low <= 4.0 <= one.high <= 16.0
    assert median_interval([3.0], np.random.default_rng(1)) is None


def test_the_range_of_five_runs_does_not_hold_the_median_with_95_percent() -> None:
    assert (median_coverage(1), median_coverage(5), median_coverage(6)) == (0.0, 0.9375, 0.96875)


def test_runs_needed_is_noethers_number() -> None:
    """(1.960 + 0.842)² / (6 · 0.21²) = 29.7."""
    assert runs_needed(0.71, 0.05) == 30
    assert runs_needed(0.29, 0.05) == 30
    assert runs_needed(0.5, 0.05) is None
    assert runs_needed(1.0, 0.05) == 6
    assert runs_needed(1.0, 1e-6) == max(least_runs(1e-6), 22)


def test_so_many_runs_have_the_power() -> None:
    """Two normal distributions that lie apart by √2 · Φ⁻¹(0.8) have A12 = 0.8."""
    count = runs_needed(0.8, 0.05)
    assert count == 15
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(400, count)), rng.normal(math.sqrt(2) * stats.norm.ppf(0.8), size=(400, count))
    found = np.mean(stats.mannwhitneyu(first, second, axis=1).pvalue <= 0.05)
    assert 0.72 <= found <= 0.92


def test_least_runs() -> None:
    """2 / C(6, 3) = 0.1 and 2 / C(8, 4) = 0.029."""
    assert (least_p(3, 3), least_p(1, 1), least_p(1, 9)) == (0.1, 1.0, 0.2)
    assert [least_runs(alpha) for alpha in (0.1, 0.05, 0.01)] == [3, 4, 5]


def test_mean_gain_by_hand() -> None:
    gain = mean_gain([1.0, 4.0])
    half = stats.t.ppf(0.975, 1) * math.log(2)
    assert (gain.count, gain.mean) == (2, pytest.approx(2.0))
    assert gain.interval is not None
    assert math.log(gain.interval.low) == pytest.approx(math.log(2) - half)
    assert math.log(gain.interval.high) == pytest.approx(math.log(2) + half)
    assert mean_gain([1.5]).interval is None
    with pytest.raises(ValueError, match="no gain"):
        mean_gain([])


def test_signs_needed_is_noethers_number() -> None:
    """(1.960 + 0.842)² / (4 · 0.25²) = 31.4; at 0.05 / 6 (2.638 + 0.842)² / (4 · 0.1²) = 302.7."""
    assert signs_needed(0.75, 0.05) == signs_needed(0.25, 0.05) == 32
    assert signs_needed(0.6, 0.05 / 6) == 303
    assert signs_needed(0.5, 0.05) is None
    assert signs_needed(1.0, 0.05) == 8
    assert least_sign_p(signs_needed(1.0, 1e-12) or 0) <= 1e-12


@pytest.mark.parametrize(("share", "alpha"), [(0.55, 0.05), (0.6, 0.05 / 6), (0.75, 0.05), (0.8, 0.05 / 15)])
def test_so_many_signs_have_the_power(share: float, alpha: float) -> None:
    """Of the exact test, whose power goes up and down with the count by some hundredths."""
    count = signs_needed(share, alpha)
    assert count is not None
    ahead = range(count + 1)
    found = sum(stats.binom.pmf(k, count, share) for k in ahead if stats.binomtest(k, count).pvalue <= alpha)
    assert 0.73 <= found <= 0.87
