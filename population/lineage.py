"""Who descends from whom, and what became of a kernel's lines on the way. Pure: it reads ids and texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


class Lineage:
    """The family tree of a run, from (id, parent ids) in the order of birth.

    Every method raises KeyError for an id that is not listed.
    """

    def __init__(self, births: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Raises ValueError where an id is listed twice, or a parent is not listed before its child."""
        self._parents: dict[str, tuple[str, ...]] = {}
        for child, parents in births:
            if child in self._parents:
                raise ValueError(f"lineage: {child} is listed twice; expected each individual once")
            for parent in parents:
                if parent not in self._parents:
                    raise ValueError(f"lineage: {parent}, parent of {child}, is not listed before it")
            self._parents[child] = tuple(parents)

    def line(self, individual_id: str) -> tuple[str, ...]:
        """From the seed to the individual, both included, along first parents."""
        line = [individual_id]
        while parents := self._parents[line[-1]]:
            line.append(parents[0])
        return tuple(reversed(line))

    def nearest_common(self, one: str, other: str) -> str | None:
        """What both came of with the fewest births in between, the later listed of equals; one may be the other's."""
        first, second = (self._distances(each) for each in (one, other))
        common = [name for name in self._parents if name in first and name in second]
        return min(reversed(common), key=lambda name: first[name] + second[name], default=None)

    def _distances(self, start: str) -> dict[str, int]:
        """How many births away each is that `start` came of, itself included."""
        found, ring, births = {start: 0}, [start], 0
        while ring:
            births += 1
            ring = list(dict.fromkeys(one for each in ring for one in self._parents[each] if one not in found))
            found |= dict.fromkeys(ring, births)
        return found


@dataclass(frozen=True, kw_only=True)
class ReaddedLines:
    """How many lines a child added, and how many of those its line had held and deleted before."""

    added: int
    readded: int


def readded_lines(line_sources: Sequence[str]) -> ReaddedLines:
    """The lines that the last source adds to the one before it, and which of them were deleted earlier on the line.

    `line_sources` run from the seed to the child. Lines are compared byte for byte and counted as often as they occur;
    one that only moved is neither added nor deleted; blank ones do not count. Sum both counts over all children for a
    run's share: EvoTrace (arXiv 2605.20086) found about 30 % in searches like this one.
    Raises ValueError where there is no source.
    """
    if not line_sources:
        raise ValueError("readded_lines: no source; expected those from the seed to the child")
    lines = [_lines(source) for source in line_sources]
    if len(lines) == 1:
        return ReaddedLines(added=0, readded=0)
    deleted: set[str] = set()
    for parent, child in pairwise(lines[:-1]):
        deleted |= (parent - child).keys()
    added = lines[-1] - lines[-2]
    readded = sum(count for line, count in added.items() if line in deleted)
    return ReaddedLines(added=added.total(), readded=readded)


def _lines(source: str) -> Counter[str]:
    return Counter(line for line in source.split("\n") if line.strip())
