"""A C++ source cut into comments, literals and the code between them, as a compiler cuts it."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from fitness.faults import CandidateFault, invalid

MAX_SOURCE_BYTES = 256 * 1024

# Every alternative is possessive or ends at a fixed mark, so that no text takes more than linear time.
_PIECE = re.compile(
    r"""
      (?P<comment> //(?:[^\\\n]|\\[\s\S]?)*+ | /\*[\s\S]*?\*/ )
    | (?P<literal> "(?:[^"\\\n]|\\[\s\S])*+" | '(?:[^'\\\n]|\\[\s\S])*+' )
    | (?P<raw>     (?:u8|[uUL])?R" )
    | (?P<code>    (?: [A-Za-z_]\w*+(?!") | NUMBER(?!') | [^\w"'/] | /(?![/*]) )++
                 | [A-Za-z_]\w*+ )
    | (?P<separator> NUMBER' )
    | (?P<open>    /\* | ["'] )
    """.replace("NUMBER", r"\.?[0-9](?:[eEpP][+-]|[\w.])*+"),
    re.VERBOSE | re.ASCII,
)

_REFUSED = {
    "raw": "raw string literals are not allowed; write an ordinary one",
    "separator": "an apostrophe may not follow a number; write 1000, not 1'000",
    "open": "this comment or literal has no end",
}


class Kind(StrEnum):
    """What a piece of source is."""

    COMMENT = "comment"
    LITERAL = "literal"  # a string or a character, without its prefix
    CODE = "code"


_KINDS = {kind.value: kind for kind in Kind}


class Piece(NamedTuple):  # a source may have a hundred thousand of them, and a dataclass takes thrice as long
    """A stretch of a source; the pieces of a source follow each other without a gap."""

    kind: Kind
    text: str
    start: int


def pieces(source: str) -> Iterator[Piece]:
    """The source's pieces in order.

    Raises CandidateFault (INVALID) for a source of more than 256 KiB, a comment or literal without its end, and for
    what compilers themselves cut differently: raw string literals and digit separators.
    """
    check_size(source)
    for match in _PIECE.finditer(source):
        group = str(match.lastgroup)
        if group in _REFUSED:
            raise _fault(source, match.start(), _REFUSED[group])
        yield Piece(_KINDS[group], match[0], match.start())


def line_number(source: str, position: int) -> int:
    """The line, counted from 1, on which a position lies."""
    return source.count("\n", 0, position) + 1


def check_size(source: str) -> None:
    """Raise CandidateFault (INVALID) for a source of more than 256 KiB."""
    # A lone surrogate has no UTF-8; the rules refuse it later, here it only has to be counted.
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise invalid(f"the source has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed")


def _fault(source: str, position: int, problem: str) -> CandidateFault:
    shown = source[position : position + 40].split("\n", 1)[0]
    return invalid(f"line {line_number(source, position)}: {shown!r}: {problem}")
