"""Figures and shades of the heat maps."""

from dataclasses import replace

import pytest
from small_records import timing

from evo.report.account import Milestone
from evo.report.heat import Cell, against_baseline, against_roof, speedup_cell


def milestone(place: int, **speedups: float) -> Milestone:
    timings = tuple(timing(name, speedup) for name, speedup in speedups.items())
    return Milestone(place=place, kernel=f"k{place}", geomean=1.0, timings=timings)


def test_shades_are_even_on_both_sides_of_the_baseline() -> None:
    map_ = against_baseline([milestone(1, a=0.25, b=1.0), milestone(4, a=2.0, b=4.0)])
    assert map_ is not None
    assert map_.span == 4.0
    assert map_.rows == (
        ("a", (Cell(text="0.250", shade="worse-10"), Cell(text="2.000", shade="better-5"))),
        ("b", (Cell(text="1.000", shade="even"), Cell(text="4.000", shade="better-10"))),
    )


def test_a_little_noise_gets_no_strong_shade() -> None:
    map_ = against_baseline([milestone(1, a=1.001)])
    assert map_ is not None
    assert (map_.span, map_.rows[0][1][0].shade) == (1.1, "even")


def test_a_scenario_that_a_milestone_lacks_is_a_dash() -> None:
    map_ = against_baseline([milestone(1, a=2.0), milestone(2, b=2.0)])
    assert map_ is not None
    assert [cell.text for cell in map_.rows[0][1]] == ["2.000", "–"]


def test_shares_of_the_roof() -> None:
    roofed = replace(milestone(1, a=0.5), timings=(replace(timing("a", 0.5), roof_ms=0.5), timing("b", 1.0)))
    map_ = against_roof([roofed])
    assert map_ is not None
    assert map_.rows == (("a", (Cell(text="25%", shade="share-2"),)), ("b", (Cell(text="–", shade="none"),)))


@pytest.mark.parametrize("milestones", [[], [Milestone(place=1, kernel="k", geomean=1.0, timings=())]])
def test_no_timings_no_map(milestones: list[Milestone]) -> None:
    assert against_baseline(milestones) is None
    assert against_roof(milestones) is None


def test_nothing_to_compare_with() -> None:
    assert speedup_cell(None, 1.5) == Cell(text="–", shade="none")
    assert speedup_cell(100.0, 1.5).shade == "better-10"
