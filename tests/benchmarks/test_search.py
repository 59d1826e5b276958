"""Ways to search, compared on a table: the same figures every time, and what they are the figures of."""

from pathlib import Path

import numpy as np
import pytest
from small_search import SOURCE, judge_knobs

from benchmarks.grid import narrowed, read_grid, variants
from benchmarks.search import STRATEGIES, Task, arrival, blind, bootstrap, search, summarise
from fitness.backends.recorded import export_table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a grid of 24 kernels, with the seed beside it."""
    path = tmp_path_factory.mktemp("table") / "grid.jsonl"
    seed = narrowed(SOURCE, read_grid(["BLOCK_M=32,64,128", "STAGES=1,2", "WIDTH=1,2,4"]))
    export_table([judge_knobs(source, "smoke") for source in variants(seed)], path)
    path.with_suffix(".cu").write_text(seed, encoding="utf-8")
    return path


def task(table: Path, strategy: int, rng_seed: int, kernel: Path | None = None) -> Task:
    start = kernel or table.with_suffix(".cu")
    return Task(table=table, kernel=start, strategy=STRATEGIES[strategy], rng_seed=rng_seed, evaluations=9)


def test_a_search_gives_its_best_after_each_evaluation_and_the_same_again(table: Path) -> None:
    history = search(task(table, 0, 3))
    assert len(history) == 9
    assert history == sorted(history)
    assert search(task(table, 0, 3)) == history
    assert any(search(task(table, 0, other)) != history for other in range(3))


def test_a_table_that_is_no_whole_grid_is_told_of(table: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    part.write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[::5]), encoding="utf-8")
    seed = tmp_path / "part.cu"
    seed.write_text(table.with_suffix(".cu").read_text(encoding="utf-8"), encoding="utf-8")
    searched = task(part, 0, 0, seed)
    with pytest.raises(ValueError, match="candidates lie outside"):
        search(searched)


def test_arrival_is_the_first_evaluation_at_the_target() -> None:
    assert arrival([0.5, 0.9, 1.0], 0.9) == 2
    assert arrival([0.5, 0.9, 1.0], 1.1) == 4


def test_kernels_drawn_blindly_by_hand() -> None:
    """Two of four: six pairs, of which 1, 2 and 3 have the third, the second and the best kernel in front."""
    drawn = blind([4.0, 1.0, 3.0, 2.0], 2)
    assert drawn["share_of_best"] == pytest.approx((1 * 2 + 2 * 3 + 3 * 4) / 6 / 4)
    assert drawn["arrives"] == pytest.approx(1 / 2)
    assert blind([1.0, 0.999, 0.5], 3) == pytest.approx({"share_of_best": 1.0, "arrives": 1.0})


def test_an_interval_holds_its_mean_and_is_a_point_where_nothing_varies() -> None:
    rng = np.random.default_rng(1)
    found = bootstrap([1.0, 2.0, 3.0, 4.0], rng)
    assert found.mean == 2.5
    assert 1.25 <= found.low < 2.5 < found.high <= 3.75
    still = bootstrap([2.0, 2.0], rng)
    assert (still.mean, still.low, still.high) == (2.0, 2.0, 2.0)


def test_strategies_are_told_apart_in_the_order_in_which_they_ran() -> None:
    histories = [[0.5, 1.0], [1.0, 1.0], *([[0.5, 0.5]] * 6)]
    rows = summarise(histories, best=1.0, seeds=2)
    assert [row["strategy"] for row in rows] == [
        "tournament, thompson", "tournament, uniform", "lexicase, thompson", "lexicase, uniform",
    ]  # fmt: skip
    assert [row["arrived"] for row in rows] == [2, 0, 0, 0]
    assert rows[0]["evaluations_to_near"]["mean"] == 1.5  # type: ignore[index]
    assert rows[1]["minus_first"]["mean"] == -0.5  # type: ignore[index]
