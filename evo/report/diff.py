"""What a child changed in its parent's source, in pieces that a page can mark as added, deleted or kept."""

import difflib
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

_CONTEXT = 3  # lines kept around a change


class Kind(StrEnum):
    """What became of the lines of a piece."""

    PLACE = "place"  # a heading that says which lines follow
    KEPT = "kept"
    ADDED = "added"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Neighbouring lines that share one fate, without the marks that a diff puts before them."""

    kind: Kind
    text: str  # each line with its end


_KINDS = {"@": Kind.PLACE, " ": Kind.KEPT, "+": Kind.ADDED, "-": Kind.DELETED}


def diff_of(parent: str, child: str) -> tuple[Piece, ...]:
    """The pieces of a unified diff; empty for equal sources."""
    lines = list(difflib.unified_diff(parent.splitlines(), child.splitlines(), n=_CONTEXT, lineterm=""))[2:]
    return tuple(_piece(_KINDS[mark], list(group)) for mark, group in groupby(lines, key=lambda line: line[0]))


def _piece(kind: Kind, lines: list[str]) -> Piece:
    bare = lines if kind is Kind.PLACE else [line[1:] for line in lines]
    return Piece(kind=kind, text="".join(f"{line}\n" for line in bare))
