"""What of a reply is prose, and what is code: thinking dropped, fences and edit blocks told apart."""

import re
from dataclasses import dataclass
from typing import Final

from evo.typography import plain
from evo.unreadable import UnreadableReply

_THINK_TAG: Final = re.compile(
    r"(?P<first>^[ \t]*)?<(?P<closing>/?)(?:think|thinking|reasoning)>(?P<last>[ \t]*$)?",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE: Final = re.compile(r"^([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_SEARCH: Final = re.compile(r"^[ \t]*<{5,9} ?SEARCH[ \t]*$", re.IGNORECASE)
_DIVIDER: Final = re.compile(r"^[ \t]*={7}[ \t]*$")
_REPLACE: Final = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t]*$", re.IGNORECASE)
_LIKE_A_MARK: Final = re.compile(r"^[ \t]*(?:<{5}|>{5})")


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A fenced block; `tag` is the first word after its marks, in small letters."""

    tag: str
    lines: tuple[str, ...]

    @property
    def holds_a_fence(self) -> bool:
        """Whether a line inside opens another, by its tag: where one ends is then a guess."""
        return any(opening and opening[3].strip() for opening in map(_FENCE.match, self.lines))


@dataclass(frozen=True, kw_only=True)
class EditBlock:
    """One SEARCH/REPLACE block, in lines without their ends."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A reply taken apart. `prose` is its passages between code; fences that only wrap edit blocks are left out."""

    prose: tuple[str, ...]
    fences: tuple[Fence, ...]
    blocks: tuple[EditBlock, ...]


def without_thinking(text: str) -> str:
    """The reply without its think blocks.

    A block opens with a tag that begins a line, in code too, and ends with the next closing tag. A closing tag alone,
    first or last in its line, ends a block that the model's own template had opened. Raises UnreadableReply where a
    block is opened, never closed, and nothing else was said.
    """
    kept: list[str] = []
    position, thinking = 0, False
    for tag in _THINK_TAG.finditer(text):
        if tag["closing"]:
            if thinking or tag["first"] is not None or tag["last"] is not None:
                if not thinking:
                    kept.clear()
                thinking, position = False, tag.end()
        elif not thinking and tag["first"] is not None:
            kept.append(text[position : tag.start()])
            thinking = True
    if not thinking:
        kept.append(text[position:])
    answer = "".join(kept)
    if thinking and not answer.strip():
        raise UnreadableReply("the reply is all thinking: it ends before the answer")
    return answer


def take_apart(text: str) -> Layout:
    """The prose, the fences and the edit blocks of a reply, in one pass.

    Edit blocks are known by their own marks, in a fence or out of one. Raises UnreadableReply where a fence or a block
    never closes, or the marks of a block are out of order.
    """
    lines = text.split("\n")
    passages: list[list[str]] = [[]]
    fences: list[Fence] = []
    blocks: list[EditBlock] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    wraps_blocks = False
    position = 0
    while position < len(lines):
        line = lines[position]
        mark = plain(line)
        if _SEARCH.match(mark):
            block, position = _read_block(lines, position, number=len(blocks) + 1)
            blocks.append(block)
            passages.append([])
            wraps_blocks = True
        elif _LIKE_A_MARK.match(mark):
            raise UnreadableReply(f"{mark.strip()[:80]!r} is no mark of an edit block, or out of place")
        elif opening is None:
            opening = _FENCE.match(mark)
            if opening:
                body, wraps_blocks = [], False
                passages.append([])
            else:
                passages[-1].append(line)
        elif _closes(opening, mark):
            if not wraps_blocks:
                words = opening[3].lower().split()
                fences.append(Fence(tag=words[0] if words else "", lines=tuple(body)))
            opening = None
        else:
            body.append(line.removeprefix(opening[1]))
        position += 1
    if opening:
        raise UnreadableReply("a fence is opened and never closed: the reply ends in the middle of its code")
    return Layout(prose=tuple("\n".join(passage) for passage in passages), fences=tuple(fences), blocks=tuple(blocks))


def _closes(opening: re.Match[str], line: str) -> bool:
    row = line.strip(" \t")
    return len(row) >= len(opening[2]) and row == opening[2][0] * len(row)


def _read_block(lines: list[str], start: int, *, number: int) -> tuple[EditBlock, int]:
    """The block that begins at `start`, and the position of its last line."""
    parts: list[list[str]] = [[]]
    for position in range(start + 1, len(lines)):
        line = lines[position]
        mark = plain(line)
        if _REPLACE.match(mark):
            if len(parts) != 2:
                raise UnreadableReply(f"edit {number}: exactly one line ======= must part SEARCH and REPLACE")
            return EditBlock(search=tuple(parts[0]), replace=tuple(parts[1])), position
        if _SEARCH.match(mark):
            raise UnreadableReply(f"edit {number}: the next one begins before its line >>>>>>> REPLACE")
        if _LIKE_A_MARK.match(mark):
            raise UnreadableReply(f"edit {number}: {mark.strip()[:80]!r} is no mark of an edit block")
        if _DIVIDER.match(mark):
            parts.append([])
        else:
            parts[-1].append(line)
    raise UnreadableReply(f"edit {number}: the reply ends before its line >>>>>>> REPLACE")
