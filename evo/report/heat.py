"""Heat maps as tables: a figure and a shade for each scenario at each milestone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evo.report.account import Milestone
from fitness.evaluation import ScenarioTiming

SHADES = 10  # on each side of even
_LEAST_SPAN = 1.1  # the factor that the strongest shade stands for at least: noise must not look like a difference


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure."""

    text: str
    shade: str  # a class of the style sheet: better-3, worse-10, share-7, even


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Scenarios in rows, milestones in columns."""

    milestones: tuple[Milestone, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]  # by scenario
    span: float  # what the strongest shades stand for


def against_baseline(milestones: Sequence[Milestone]) -> HeatMap | None:
    """Speedups; even is 1. None where no milestone has timings."""
    speedups = [timing.speedup for each in milestones for timing in each.timings]
    span = max((max(value, 1 / value) for value in speedups), default=_LEAST_SPAN)
    span = max(span, _LEAST_SPAN)
    return _map(milestones, span, lambda timing: speedup_cell(timing.speedup, span))


def against_roof(milestones: Sequence[Milestone]) -> HeatMap | None:
    """Shares of what the device's roof allows. None where no timing has a roof."""
    if not any(timing.roof_share is not None for each in milestones for timing in each.timings):
        return None
    return _map(milestones, 1.0, lambda timing: _share_cell(timing.roof_share))


def speedup_cell(factor: float | None, span: float) -> Cell:
    """A factor, shaded on a logarithmic scale that ends at `span` and 1 / span."""
    if factor is None:
        return Cell(text="–", shade="none")
    share = math.log(factor) / math.log(span)
    step = max(-SHADES, min(SHADES, round(share * SHADES)))
    shade = f"better-{step}" if step > 0 else f"worse-{-step}" if step < 0 else "even"
    return Cell(text=f"{factor:.3f}", shade=shade)


def _share_cell(share: float | None) -> Cell:
    if share is None:
        return Cell(text="–", shade="none")
    return Cell(text=f"{share:.0%}", shade=f"share-{max(0, min(SHADES, round(share * SHADES)))}")


def _map(milestones: Sequence[Milestone], span: float, cell: Callable[[ScenarioTiming], Cell]) -> HeatMap | None:
    shown = tuple(each for each in milestones if each.timings)
    if not shown:
        return None
    names = dict.fromkeys(timing.scenario for each in shown for timing in each.timings)
    columns = [{timing.scenario: cell(timing) for timing in each.timings} for each in shown]
    none = Cell(text="–", shade="none")
    rows = tuple((name, tuple(column.get(name, none) for column in columns)) for name in names)
    return HeatMap(milestones=shown, rows=rows, span=span)
