"""Whose turn it is: dear cells now and then, FA3 whenever a cell comes, the others by turns on every cell and input."""

from collections import Counter
from typing import Any

import pytest
import torch

from benchmarks.honest_kernels import Cell, Honest, Tally, distribution_at
from fitness.backends.backend import Tensors
from fitness.evaluation import ScenarioCheck
from fitness.inputs import Distribution
from fitness.scenario import Scenario

SCENARIO = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=1, seqlen_k=1, head_dim=16, causal=False)
NOTHING = torch.empty(0)
DRAWN = len(Distribution)


def cell(place: int, **every: int) -> Cell:
    """A cell whose kernels get every so many-th of its seeds."""
    tensors = Tensors(q=NOTHING, k=NOTHING, v=NOTHING, o=NOTHING, lse=NOTHING)
    kernels = tuple(Honest(kernel=name, call=_never, every=each) for name, each in every.items())
    return Cell(place=place, scenario=SCENARIO, tensors=tensors, every=1, kernels=kernels)


def _never() -> Any:
    raise AssertionError("nobody is called here")


def names(kernels: list[Honest]) -> list[str]:
    return [honest.kernel for honest in kernels]


def test_a_kernel_in_full_is_there_every_time_and_others_by_turns() -> None:
    turns = [names(cell(0, fa3=1, cudnn=3).takers(turn * DRAWN)) for turn in range(4)]
    assert turns == [["fa3", "cudnn"], ["fa3"], ["fa3"], ["fa3", "cudnn"]]


def test_within_a_seed_the_others_get_some_of_the_cells() -> None:
    seed = [names(cell(place, fa3=1, cudnn=3).takers(7)) for place in range(3)]
    assert seed == [["fa3"], ["fa3"], ["fa3", "cudnn"]]


@pytest.mark.parametrize("every", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("place", [0, 1, 25])
def test_each_cell_meets_every_distribution_equally_often(place: int, every: int) -> None:
    """Whatever divisors the number of distributions and that of turns have in common."""
    turns = range(2 * DRAWN * every)
    met = Counter(distribution_at(turn) for turn in turns if cell(place, ours=every).takers(turn))
    assert met == dict.fromkeys(Distribution, 2)


def check(error: float, reason: str = "") -> ScenarioCheck:
    return ScenarioCheck(
        scenario="s", distribution="normal", stage="ours", input_seed=7, passed=not reason, reason=reason,
        max_error=error, max_error_bound=2.0, relative_rms_error=None, relative_rms_bound=1.0,
        mean_error=error / 2, mean_error_bound=2.0, lse_max_error=None, lse_max_bound=1.0,
        row_error=0.0, row_error_bound=1.0,
    )  # fmt: skip


def test_an_output_is_counted_once_and_its_rows_have_shares_of_their_own() -> None:
    tally = Tally()
    tally.add(check(1.0), check(0.5))
    tally.add(check(0.2), check(1.5, "in queries 0 to 3: too far off"))
    assert tally.outputs == {"s": 2}
    assert tally.shares == {"max_error": 0.5, "mean_error": 0.25, "row_error": 0.0}
    assert tally.shares_of_rows == {"max_error": 0.75, "mean_error": 0.375, "row_error": 0.0}
    assert tally.failures == ["s, normal inputs, seed 7: in queries 0 to 3: too far off"]
