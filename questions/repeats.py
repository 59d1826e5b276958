"""Going in circles: lines that a lineage adds although it deleted them before."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class LineCount:
    """Lines that one step, or several, added; and how many of those had been deleted earlier in the lineage."""

    added: int
    repeated: int

    @property
    def share(self) -> float:
        """repeated / added; 0.0 where nothing was added."""
        return self.repeated / self.added if self.added else 0.0


def repeats_by_step(sources: Sequence[str]) -> tuple[LineCount, ...]:
    """One count for each step from a source to the next, the oldest first.

    Lines are compared byte by byte. A line that only moved is neither added nor deleted, and lines without a letter or
    a digit (a brace, a blank) do not count. A deleted line can be repeated once, until it is deleted again.
    """
    deleted: Counter[str] = Counter()
    counts = []
    lines = [_lines(source) for source in sources]
    for before, after in pairwise(lines):
        added = after - before
        back = added & deleted
        deleted = (deleted - back) + (before - after)
        counts.append(LineCount(added=added.total(), repeated=back.total()))
    return tuple(counts)


def _lines(source: str) -> Counter[str]:
    return Counter(line for line in source.split("\n") if any(character.isalnum() for character in line))
