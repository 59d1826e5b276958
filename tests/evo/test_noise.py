"""What an evaluation's own calls tell of its geomean, and how far two evaluations must lie apart to say more."""

import json
import math
import statistics
from pathlib import Path

import pytest
from small_records import failed, within

from evo.noise import APART, beyond_noise, noise
from fitness.evaluation import Status

RECORD = Path(__file__).parents[2] / "docs" / "results" / "h200-evaluations-apart.json"


def test_the_noise_of_an_evaluation_is_half_its_interval() -> None:
    assert noise(within("kernel", 1.2, 1.05)) == pytest.approx(math.log(1.05))
    assert noise(failed("kernel", Status.INCORRECT, "o differs")) == 0.0


def test_evaluations_that_know_their_own_calls_exactly_may_differ_all_the_same() -> None:
    """The root of 0.003² + 0.003² is 0.0042."""
    assert not beyond_noise(math.exp(0.0042), 0.0, 0.0)
    assert not beyond_noise(math.exp(-0.0042), 0.0, 0.0)
    assert beyond_noise(math.exp(0.0043), 0.0, 0.0)
    assert beyond_noise(math.exp(-0.0043), 0.0, 0.0)


def test_what_the_calls_leave_open_adds_up_with_what_evaluations_differ_by() -> None:
    """The root of 2 · 0.003² + 2 · 0.0012² is 0.00457; of 0.0012² twice alone it is 0.0017."""
    assert not beyond_noise(math.exp(0.0045), 0.0012, 0.0012)
    assert beyond_noise(math.exp(0.0046), 0.0012, 0.0012)


def test_each_evaluation_that_is_named_counts_once() -> None:
    assert beyond_noise(math.exp(0.0031), 0.0)
    assert not beyond_noise(math.exp(0.0031), 0.0, 0.0)
    assert not beyond_noise(math.exp(0.0044), 0.0, 0.0012, 0.0012)


def test_what_evaluations_differ_by_is_what_was_measured() -> None:
    """What the variance of ten evaluations exceeds that of their intervals by, times 1.96."""
    workers = json.loads(RECORD.read_text(encoding="utf-8"))["workers"]
    evaluations = [each for worker in workers for each in worker]
    variance = statistics.variance(math.log(each["geomean"]) for each in evaluations)
    of_calls = statistics.mean((math.log(each["high"] / each["low"]) / 2 / 1.96) ** 2 for each in evaluations)
    assert len(evaluations) == 10
    assert pytest.approx(1.96 * math.sqrt(variance - of_calls), rel=0.05) == APART
