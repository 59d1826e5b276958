"""In whichever order a generation's candidates are measured, the same population comes of it."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_search import KnobJudge, run_part, small_config, snapshot

from evo.config import SelectionKind
from fitness.evaluation import Evaluation
from population.run_folder import create_run_folder


class Shuffled(KnobJudge):
    """Finishes each batch in an order of its own."""

    def __init__(self, rng_seed: int) -> None:
        super().__init__()
        self._rng = random.Random(rng_seed)

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        found = super().evaluate_all(sources)
        order = list(range(len(sources)))
        self._rng.shuffle(order)
        for place in order:
            if on_done is not None:
                on_done(place, found[place])
        return found


def unordered(seen: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without the order of its evaluations, which the archive keeps as it was."""
    evaluations = sorted(seen["evaluations"], key=lambda row: str(row[0]))
    result = {key: value for key, value in seen["result"].items() if key != "history"}
    return seen | {"evaluations": evaluations, "result": result}


@pytest.mark.parametrize("rng_seed", range(4))
@pytest.mark.parametrize("selection", list(SelectionKind))
def test_the_order_of_completion_changes_nothing(tmp_path: Path, rng_seed: int, selection: SelectionKind) -> None:
    config = small_config(generations=4, selection=selection)
    ordered, other = create_run_folder(tmp_path, "ordered"), create_run_folder(tmp_path, "other")
    run_part(config, ordered)
    run_part(config, other, Shuffled(rng_seed))
    one, two = snapshot(ordered), snapshot(other)
    assert one["evaluations"] != two["evaluations"]  # the order did differ
    assert unordered(one) == unordered(two)


def test_a_run_in_another_order_is_gone_on_with_exactly(tmp_path: Path) -> None:
    whole, parts = create_run_folder(tmp_path, "whole"), create_run_folder(tmp_path, "parts")
    run_part(small_config(generations=4), whole)
    for budget in (3, 7, 9, None):
        run_part(small_config(generations=4, evaluations=budget), parts, Shuffled(budget or 0))
    assert unordered(snapshot(whole)) == unordered(snapshot(parts))
