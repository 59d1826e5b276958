"""A C++ source cut into comments, literals and the code between them, as a compiler cuts it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fitness.evaluation import Status
from fitness.faults import CandidateFault

MAX_SOURCE_BYTES = 256 * 1024

# Every alternative is possessive or ends at a fixed mark, so that no text takes more than linear time.
_PIECE = re.compile(
    r"""
      (?P<comment> //(?:[^\\\n]|\\[\s\S]?)*+ | /\*[\s\S]*?\*/ )
    | (?P<literal> "(?:[^"\\\n]|\\[\s\S])*+" | '(?:[^'\\\n]|\\[\s\S])*+' )
    | (?P<raw>     (?:u8|[uUL])?R" )
    | (?P<code>    (?: [A-Za-z_]\w*+(?!")                                      # a word that is no literal's prefix
                     | \.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*+    # a number, 1'000 with its separators
                     | [^\w"'/] | /(?![/*])
                   )++
                 | [A-Za-z_]\w*+ )
    | (?P<open>    /\* | ["'] )
    """,
    re.VERBOSE | re.ASCII,
)


class Kind(StrEnum):
    """What a piece of source is."""

    COMMENT = "comment"
    LITERAL = "literal"  # a string or a character, without its prefix
    CODE = "code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of a source; the pieces of a source follow each other without a gap."""

    kind: Kind
    text: str
    start: int


def pieces(source: str) -> Iterator[Piece]:
    """The source's pieces in order.

    Raises CandidateFault (INVALID) for a source of more than 256 KiB, a comment or literal without its end, or a raw
    string literal, whose rules differ so much that the rest of the file would have to be read twice.
    """
    _check_size(source)
    for match in _PIECE.finditer(source):
        kind = match.lastgroup
        if kind == "raw":
            raise _fault(source, match.start(), "raw string literals are not allowed; write an ordinary one")
        if kind == "open":
            opened = "comment" if match[0] == "/*" else "string or character literal"
            raise _fault(source, match.start(), f"this {opened} has no end")
        yield Piece(kind=Kind(str(kind)), text=match[0], start=match.start())


def line_number(source: str, position: int) -> int:
    """The line, counted from 1, on which a position lies."""
    return source.count("\n", 0, position) + 1


def _check_size(source: str) -> None:
    # A lone surrogate has no UTF-8; the rules refuse it later, here it only has to be counted.
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise CandidateFault(Status.INVALID, f"the source has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed")


def _fault(source: str, position: int, problem: str) -> CandidateFault:
    shown = source[position : position + 40].split("\n", 1)[0]
    return CandidateFault(Status.INVALID, f"line {line_number(source, position)}: {shown!r}: {problem}")
