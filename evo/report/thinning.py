"""What a page keeps of a large run. The rule for readers is in docs/report.md; change both together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

Item = TypeVar("Item")

MOST_DETAILED = 150  # kernels with a table and a diff
MOST_COLUMNS = 40  # milestones in a heat map
MOST_QUESTIONS = 300  # rows of their table
MOST_AUDITS = 20  # the latest
MOST_TEXT = 2000  # characters of the question and of the reply's word where a kernel is told in full
MOST_IN_A_ROW = 300  # characters of a question in the table
MOST_SOURCE = 100_000  # characters of the champion
DETAIL_CHARACTERS = 1_000_000  # of all tables and diffs together, as they stand in the file
CELLS = (300, 120)  # of a picture: dots in one cell are drawn as one
_CHARACTERS_OF_A_ROW = 200  # in a table of scenarios


@dataclass(kw_only=True)
class Room:
    """What is left of a page for details; those asked for first get it."""

    characters: int = DETAIL_CHARACTERS
    kernels: int = MOST_DETAILED

    def take_table(self, rows: int, texts: Iterable[str] = ()) -> bool:
        """Whether there is room for one more kernel with these words and a table of so many rows; it is taken then."""
        if self.kernels == 0 or not self._take(rows * _CHARACTERS_OF_A_ROW + _escaped(texts)):
            return False
        self.kernels -= 1
        return True

    def take_texts(self, texts: Iterable[str]) -> bool:
        """Whether there is room for the texts, escaped as a page holds them; it is taken then."""
        return self._take(_escaped(texts))

    def _take(self, characters: int) -> bool:
        if characters > self.characters:
            return False
        self.characters -= characters
        return True


def most_telling(gains: Sequence[float | None], most: int) -> list[int]:
    """Places of the `most` greatest gains, in their order; the first and the last place are always among them."""
    ends = sorted({0, len(gains) - 1}) if gains else []
    ranked = sorted(range(len(gains)), key=lambda place: -(gains[place] or 0.0))
    inner = [place for place in ranked if place not in ends][: max(0, most - len(ends))]
    return sorted([*ends, *inner])


def drawn_apart(
    items: Sequence[Item], where: Callable[[Item], tuple[float, float]], cells: tuple[int, int] = CELLS
) -> list[Item]:
    """One item of each cell of a grid that is laid over all of them: the first that falls into it."""
    points = [where(item) for item in items]
    spans = [_span([point[axis] for point in points]) for axis in (0, 1)]
    kept: dict[tuple[int, ...], Item] = {}
    for item, point in zip(items, points, strict=True):
        cell = tuple(round((point[axis] - spans[axis][0]) / spans[axis][1] * (cells[axis] - 1)) for axis in (0, 1))
        kept.setdefault(cell, item)
    return list(kept.values())


def cut(text: str, most: int = MOST_TEXT) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escaped(texts: Iterable[str]) -> int:
    return sum(len(escape(text)) for text in texts)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The least value and the range, never 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    return low, (high - low) or 1.0
