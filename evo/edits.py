"""Edits of a kernel, from SEARCH/REPLACE blocks or a unified diff, and the child that they make of its parent.

All edits are found in the parent as it was given, never in the result of one another, so their order does not matter
and half an answer cannot be applied.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evo.fences import EditBlock
from evo.typography import mended, plain
from evo.unreadable import NoChange, UnreadableReply

_HUNK: Final = re.compile(r"^@@(?:[ \t]+-(\d{1,9})(?:,\d+)?[ \t]+\+\d+(?:,\d+)?[ \t]+@@.*|.*@@[ \t]*|[ \t]*)$")
_EDITS_MAX: Final = 500


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Replace the lines `search` by the lines `replace`. `line` (from 1) is where a diff says that they stand."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Splice:
    """Parent lines [start, end) give way to `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def edits_of_blocks(blocks: Sequence[EditBlock]) -> tuple[Edit, ...]:
    """The edits of SEARCH/REPLACE blocks."""
    return tuple(Edit(search=block.search, replace=block.replace) for block in blocks)


def is_hunk_header(line: str) -> bool:
    """Whether a line of a unified diff begins a hunk."""
    return _HUNK.match(line) is not None


def edits_of_diff(lines: Sequence[str]) -> tuple[Edit, ...]:
    """The edits of a unified diff of one file: a hunk's context and removed lines give way to context and added ones.

    Line counts are not believed (models miscount); a line number only chooses among several places that match.
    Raises UnreadableReply for a line of a hunk that begins with neither a blank, + nor -.
    """
    starts = [position for position, line in enumerate(lines) if is_hunk_header(line)]
    ends = [*starts[1:], len(lines)]
    return tuple(_hunk(lines[start], lines[start + 1 : end]) for start, end in zip(starts, ends, strict=True))


def _hunk(header: str, lines: Sequence[str]) -> Edit:
    search: list[str] = []
    replace: list[str] = []
    last = len(lines)
    while last and not lines[last - 1]:  # an empty line before the fence's end is no context
        last -= 1
    for line in lines[:last]:
        mark, text = line[:1], line[1:]
        if mark == "\\":  # "\ No newline at end of file"
            continue
        if mark not in ("", " ", "+", "-"):
            raise UnreadableReply(f"a diff line begins with neither a blank, + nor -: {line[:80]!r}")
        if mark != "+":
            search.append(text)
        if mark != "-":
            replace.append(text)
    number = _HUNK.match(header)
    return Edit(
        search=tuple(search),
        replace=tuple(replace),
        line=int(number[1]) if number and number[1] else None,
    )


def apply_edits(parent: str, edits: Sequence[Edit]) -> str:
    """The child. Lines that no edit changes stay as they are in the parent, to the byte; others are `mended`.

    A search text is sought as it stands; if that is nowhere, without trailing blanks and with plain characters; if
    that is nowhere, with its indentation shifted by the same blanks in every line, and then its replacement is shifted
    too. It must stand at one place. Raises UnreadableReply where an edit has no place, several, or one that another
    edit changes too; NoChange where the child equals the parent.
    """
    if len(edits) > _EDITS_MAX:
        raise UnreadableReply(f"{len(edits)} edits; more than {_EDITS_MAX} are easier to read as the whole file")
    uniform_crlf = "\r\n" in parent and parent.count("\n") == parent.count("\r\n") == parent.count("\r")
    text = _Text(parent.replace("\r\n", "\n") if uniform_crlf else parent)
    splices = sorted(
        (_splice(text, edit, f"edit {number} of {len(edits)}") for number, edit in enumerate(edits, start=1)),
        key=lambda splice: (splice.start, splice.end),
    )
    lines: list[str] = []
    position = 0
    previous: _Splice | None = None
    for splice in splices:
        if splice.start == splice.end and not splice.lines:
            continue  # it replaces a text by itself
        if splice.start < position or (previous and (splice.start, splice.end) == (previous.start, previous.end)):
            raise UnreadableReply(f"two edits change the same place, line {splice.start + 1} of the kernel")
        lines += (*text.lines[position : splice.start], *splice.lines)
        position, previous = splice.end, splice
    child = "\n".join((*lines, *text.lines[position:]))
    if uniform_crlf:
        child = child.replace("\n", "\r\n")
    if child == parent:
        raise NoChange("no change: every edit replaces a text by itself")
    return child


class _Text:
    """A parent's lines, with the three forms of it that search texts are sought in."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.trimmed = [_trimmed(line) for line in self.lines]
        self.stripped = [line.strip() for line in self.trimmed]
        self._joined = [_joined(form) for form in (self.lines, self.trimmed, self.stripped)]

    def place(self, edit: Edit, name: str) -> int:
        """The index of the line where the search text begins."""
        trimmed = [_trimmed(line) for line in edit.search]
        needles = (list(edit.search), trimmed, [line.strip() for line in trimmed])
        for needle, form, joined in zip(needles, (self.lines, self.trimmed, self.stripped), self._joined, strict=True):
            sought = _joined(needle)
            first = joined.find(sought)
            if first < 0:
                continue
            if joined.find(sought, first + 1) < 0:
                return joined.count("\n", 0, first)
            stated = (edit.line or 0) - 1
            if stated >= 0 and form is not self.stripped and form[stated : stated + len(needle)] == needle:
                return stated
            raise UnreadableReply(
                f"{name}: its search text, {_quoted(edit)}, stands at more than one place in the kernel; "
                f"add neighbouring lines until it stands at one"
            )
        raise UnreadableReply(
            f"{name}: its search text, {_quoted(edit)}, stands nowhere in the kernel; copy whole lines of the kernel "
            f"as it was given"
        )


def _splice(text: _Text, edit: Edit, name: str) -> _Splice:
    """The edit at its place, without the lines that it leaves alone at either end."""
    if not any(map(_trimmed, edit.search)):
        raise UnreadableReply(f"{name}: its search text is empty, so it has no place; quote the lines beside it")
    place = text.place(edit, name)
    shift = _Shift(text.trimmed[place : place + len(edit.search)], edit.search, name)
    search, replace = edit.search, edit.replace
    shorter = min(len(search), len(replace))
    head = next((n for n in range(shorter) if search[n] != replace[n]), shorter)
    shorter -= head
    tail = next((n for n in range(shorter) if search[-1 - n] != replace[-1 - n]), shorter)
    return _Splice(
        start=place + head,
        end=place + len(search) - tail,
        lines=tuple(shift.apply(mended(line)) for line in replace[head : len(replace) - tail]),
    )


class _Shift:
    """The blanks by which a search text is indented less, or more, than the kernel's lines."""

    def __init__(self, lines: Sequence[str], search: Sequence[str], name: str) -> None:
        self._name = name
        pairs = [(line, _trimmed(sought)) for line, sought in zip(lines, search, strict=True) if line]
        line, sought = pairs[0]
        self._added = line.removesuffix(sought) if line.endswith(sought) else ""
        self._removed = sought.removesuffix(line) if sought.endswith(line) else ""
        if any(self._added + sought != self._removed + line for line, sought in pairs):
            raise UnreadableReply(f"{name}: its search text is indented otherwise than the kernel, line by line")

    def apply(self, line: str) -> str:
        """A replacing line, shifted as the search text must be."""
        if not line.strip():
            return line
        if not line.startswith(self._removed):
            raise UnreadableReply(f"{self._name}: {line[:80]!r} is indented less than its search text")
        return self._added + line.removeprefix(self._removed)


def _trimmed(line: str) -> str:
    return plain(line).rstrip()


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(("", *lines, ""))


def _quoted(edit: Edit) -> str:
    first = next(line.strip() for line in edit.search if line.strip())
    return f"{len(edit.search)} line{'s' if len(edit.search) > 1 else ''} with {first[:80]!r}"
