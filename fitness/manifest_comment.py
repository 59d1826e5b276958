"""Where the manifest stands in a candidate's source: the one comment that begins with /*evo, before any code."""

import re

from fitness.faults import invalid
from fitness.lexer import Kind, Piece, line_number, pieces

MAX_CHARACTERS = 8 * 1024

_MARK, _END = "/*evo", "*/"
_MARKED = re.compile(r"/\*evo(?=\s|\*/)")
_NEARLY_MARKED = re.compile(r"/\*\s*evo\b", re.IGNORECASE)


def manifest_span(source: str) -> tuple[int, int]:
    """Start and end of the TOML inside the manifest's comment.

    Raises CandidateFault (INVALID) where there is no manifest, more than one, one after code, or one of more than
    8 KiB.
    """
    all_pieces = list(pieces(source))
    found = [piece for piece in all_pieces if piece.kind is Kind.COMMENT and _MARKED.match(piece.text)]
    lines = [line_number(source, piece.start) for piece in found]
    if not found:
        hint = _near_miss(source, all_pieces)
        raise invalid(f"there is no manifest; expected a comment /*evo … */ before the first line of code{hint}")
    if len(found) > 1:
        raise invalid(f"there are {len(found)} manifests, on lines {lines[0]} and {lines[1]}; expected exactly one")
    code = next((piece for piece in all_pieces if piece.kind is not Kind.COMMENT and piece.text.strip()), None)
    if code is not None and code.start < found[0].start:
        shown = code.text.strip().split("\n", 1)[0][:40]
        raise invalid(f"the manifest on line {lines[0]} stands after code ({shown!r}); move it to the top")
    start, end = found[0].start + len(_MARK), found[0].start + len(found[0].text) - len(_END)
    if end - start > MAX_CHARACTERS:
        raise invalid(f"the manifest has {end - start} characters; at most {MAX_CHARACTERS} are allowed")
    return start, end


def _near_miss(source: str, all_pieces: list[Piece]) -> str:
    for piece in all_pieces:
        if piece.kind is Kind.COMMENT and _NEARLY_MARKED.match(piece.text):
            return f"; the comment on line {line_number(source, piece.start)} must begin with exactly /*evo"
    return ""
