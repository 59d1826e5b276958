import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from questions.credit import Outcome, Tally, statistics_of

UNREADABLE = Outcome(answered=False)
BROKEN = Outcome(answered=True)
WRONG = Outcome(answered=True, compiled=True)
FAR_BEHIND = Outcome(answered=True, compiled=True, right=True)


def right(gain: float, noise: float = 0.0) -> Outcome:
    return Outcome(answered=True, compiled=True, right=True, gain=gain, noise=noise)


def tally_of(*outcomes: Outcome) -> Tally:
    tally = Tally()
    for outcome in outcomes:
        tally = tally.plus_asked().plus(outcome)
    return tally


@pytest.mark.parametrize(
    ("outcome", "reward"),
    [
        (UNREADABLE, 0.0),
        (BROKEN, 0.0),
        (WRONG, 0.0),
        (FAR_BEHIND, 0.0),
        (right(1.0), 0.5),
        (right(1.1), 1.0),
        (right(1e6), 1.0),
        (right(math.sqrt(1.1)), 0.75),
        (right(1 / math.sqrt(1.1)), 0.25),
        (right(0.5), 0.0),
    ],
)
def test_the_reward(outcome, reward):
    assert outcome.reward == pytest.approx(reward)


def test_counts():
    statistics = statistics_of("q", tally_of(UNREADABLE, BROKEN, WRONG, FAR_BEHIND, right(1.02), right(1.02, 0.03)))
    assert (statistics.asked, statistics.answered, statistics.compiled) == (6, 5, 4)
    assert (statistics.right, statistics.gained) == (3, 1)


def test_the_mean_gain_and_its_interval():
    statistics = statistics_of("q", tally_of(right(1.0), right(1.1), right(1.21), WRONG))
    assert statistics.mean_gain == pytest.approx(1.1)
    # Student's t with 2 degrees of freedom, 4.3027, times the standard error log(1.1) / sqrt(3)
    half_width = 4.302653 * math.log(1.1) / math.sqrt(3)
    assert statistics.mean_gain_low == pytest.approx(1.1 * math.exp(-half_width), rel=1e-6)
    assert statistics.mean_gain_high == pytest.approx(1.1 * math.exp(half_width), rel=1e-6)


def test_too_few_gains_for_a_mean_or_an_interval():
    nothing, one = statistics_of("q", tally_of(WRONG)), statistics_of("q", tally_of(right(1.3)))
    assert (nothing.mean_gain, nothing.mean_gain_low, nothing.mean_gain_high) == (None, None, None)
    assert one.mean_gain == pytest.approx(1.3)
    assert (one.mean_gain_low, one.mean_gain_high) == (None, None)


def test_an_interval_stays_finite():
    statistics = statistics_of("q", tally_of(right(1e-300), right(1e300)))
    assert math.isfinite(statistics.mean_gain_high)
    assert statistics.mean_gain_low >= 0


@pytest.mark.parametrize(
    "fields",
    [
        {"answered": False, "compiled": True},
        {"answered": True, "right": True},
        {"answered": True, "compiled": True, "gain": 1.0},
        {"answered": True, "compiled": True, "right": True, "gain": math.nan},
        {"answered": True, "compiled": True, "right": True, "gain": math.inf},
        {"answered": True, "compiled": True, "right": True, "gain": 0.0},
        {"answered": True, "noise": -0.1},
        {"answered": True, "noise": math.nan},
    ],
)
def test_an_outcome_that_contradicts_itself(fields):
    with pytest.raises(ValueError, match="expected"):
        Outcome(**fields)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=30))
def test_running_moments_are_those_of_the_list(gains):
    tally = tally_of(*[right(gain) for gain in gains])
    logs = [math.log(gain) for gain in gains]
    mean = math.fsum(logs) / len(logs)
    assert tally.log_gain_mean == pytest.approx(mean, abs=1e-9)
    assert tally.log_gain_deviation == pytest.approx(math.fsum((log - mean) ** 2 for log in logs), abs=1e-6)
    assert 0 <= tally.reward_sum <= tally.credited
    assert Tally.from_json(json.loads(json.dumps(tally.to_json(), allow_nan=False))) == tally


@pytest.mark.parametrize(
    "change",
    [
        {"asked": 1.5}, {"asked": True}, {"asked": -1}, {"reward_sum": math.nan}, {"reward_sum": "1"},
        {"log_gain_deviation": -0.1}, {"extra": 1},
    ],
)  # fmt: skip
def test_a_record_that_is_no_tally(change):
    with pytest.raises(ValueError, match="tally"):
        Tally.from_json({**Tally().to_json(), **change})


def test_a_record_with_a_field_missing():
    record = Tally().to_json()
    del record["timed"]
    with pytest.raises(ValueError, match="expected the fields"):
        Tally.from_json(record)
