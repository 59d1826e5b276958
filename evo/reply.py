"""From a reply's text to the child that it describes, or to one plain reason why there is none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evo.edits import apply_edits, edits_of_blocks, edits_of_diff, is_hunk_header
from evo.fences import Fence, Layout, take_apart, without_thinking
from evo.typography import mended, plain
from evo.unreadable import NoChange, Notes, UnreadableReply
from fitness.shown_text import shown_text

_LENGTH_MAX: Final = 1_000_000
_NOTE_LENGTH_MAX: Final = 2000
_MANIFEST: Final = re.compile(r"^[ \t]*/\*evo(?=\s|\*/|$)", re.MULTILINE)
_LABEL: Final = re.compile(
    r"^[ \t#>*+_-]*(?:(?P<hypothesis>hypothesis)|(?P<change>changes?|changed)|(?P<expectation>expect(?:ed|ations?|s)?)"
    r"|(?P<claim>claim))(?:[*_]*[ \t]*[:.,][*_]*|[*_]+|[ \t]*$)[ \t]*",
    re.IGNORECASE,
)
_CLAIM: Final = re.compile(r"^[\W_]*(limit|done|none)\b(?![ \t]*\|)", re.IGNORECASE)
_REFUSAL: Final = re.compile(
    r"\b(?:I can(?:no|['’])t|I(?: a|['’])m (?:sorry|unable|not able)|I am sorry|I will not|I won['’]t|as an AI)\b",
    re.IGNORECASE,
)
_DIFF_TAGS: Final = frozenset({"diff", "patch", "udiff"})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply, read: the child's source, and what is said of it."""

    source: str
    notes: Notes


def read_reply(text: str | None, parent_source: str, finish_reason: str) -> Answer:
    """The answer in a reply to a question about `parent_source`.

    The child is given in one of three forms: SEARCH/REPLACE blocks, a unified diff in a fence, or the whole file in a
    fence (the last one that holds a manifest and a kernel; fences without a manifest are illustrations). Nothing is
    guessed: two forms in one reply, an edit without its one place, or an end in mid-code refuse the whole.
    Raises UnreadableReply, of which NoChange is a kind.
    """
    if finish_reason in ("refusal", "content_filter"):
        raise UnreadableReply(f"the model declined: {(text or '').strip()[:200] or finish_reason}")
    if finish_reason == "length":
        raise UnreadableReply("the reply reached its length limit before its end")
    if not text or not plain(text).strip():
        raise UnreadableReply("the reply is empty")
    if len(text) > _LENGTH_MAX:
        raise UnreadableReply(f"the reply has {len(text)} characters, more than {_LENGTH_MAX}")
    answer = _answer_in(text)
    if not answer.strip():
        raise UnreadableReply("the reply holds thinking and no answer")
    layout = take_apart(answer)
    notes = _read_notes(layout.prose)
    try:
        source = _read_child(layout, parent_source)
        _check_whole(source)
        if _tidy(source) == _tidy(parent_source):
            raise NoChange("no change: the child equals its parent")
    except UnreadableReply as trouble:
        raise trouble.with_notes(notes) from None
    return Answer(source=source, notes=notes)


def read_notes(text: str) -> Notes:
    """What a reply says in words, whether or not it has a child that can be read."""
    return _read_notes(take_apart(_answer_in(text[:_LENGTH_MAX])).prose)


def _answer_in(text: str) -> str:
    return without_thinking("\n".join(line.rstrip("\r") for line in text.split("\n")))


def _read_child(layout: Layout, parent_source: str) -> str:
    diffs = [fence for fence in layout.fences if _is_diff(fence)]
    files = [fence for fence in layout.fences if _has_manifest(fence) and not _is_diff(fence)]
    if bool(layout.blocks) + bool(diffs) + bool(files) > 1:
        raise UnreadableReply("the reply gives the kernel in two forms; give edit blocks, or a diff, or the whole file")
    if layout.blocks:
        return apply_edits(parent_source, edits_of_blocks(layout.blocks))
    if diffs:
        return apply_edits(parent_source, [edit for fence in diffs for edit in edits_of_diff(fence.lines)])
    if files:
        return _read_file(files)
    raise _no_code(layout)


def _is_diff(fence: Fence) -> bool:
    return any(map(is_hunk_header, fence.lines)) and (fence.tag in _DIFF_TAGS or not _has_manifest(fence))


def _has_manifest(fence: Fence) -> bool:
    return any(_MANIFEST.match(plain(line)) for line in fence.lines)


def _read_file(files: Sequence[Fence]) -> str:
    """The last file that is whole; why the last is not, where none is."""
    trouble: UnreadableReply | None = None
    for fence in reversed(files):
        try:
            source = mended("\n".join((*fence.lines, "")))
            _check_whole(source)
        except UnreadableReply as error:
            trouble = trouble or error
            continue
        if fence.holds_a_fence:
            raise UnreadableReply("the file's fence holds the opening of another: nobody can tell where the file ends")
        return source
    raise trouble or UnreadableReply("no file")


def _check_whole(source: str) -> None:
    """Raise UnreadableReply unless the source has a manifest that is closed, and a kernel after it."""
    opening = _MANIFEST.search(source)
    if opening is None:
        raise UnreadableReply("the manifest, the comment /*evo … */, is missing; a kernel needs it")
    end = source.find("*/", opening.end())
    if end < 0 or "/*" in source[opening.end() : end]:  # the end found is another comment's
        raise UnreadableReply("the manifest, the comment /*evo …, is never closed by */")
    if "__global__" not in source[end:]:
        raise UnreadableReply("no __global__ kernel follows the manifest; give the whole file, or edit blocks")


def _no_code(layout: Layout) -> UnreadableReply:
    prose = "\n".join(layout.prose).strip()
    if layout.fences:
        if any(fence.tag in _DIFF_TAGS for fence in layout.fences):
            return UnreadableReply("the diff has no line @@ that begins a hunk; give edit blocks instead")
        if any("__global__" in line for fence in layout.fences for line in fence.lines):
            return UnreadableReply("the manifest, the comment /*evo … */, is missing from the file; give it whole")
    elif _REFUSAL.search(prose[:300]):
        return UnreadableReply(f"the model declined: {prose[:200]}")
    return UnreadableReply("the reply holds neither edit blocks nor a whole kernel in a fence")


def _read_notes(prose: Sequence[str]) -> Notes:
    """The labelled passages; each runs to the next label or to the code, and the first of a name counts."""
    found: dict[str, str] = {}
    for passage in prose:
        name, lines = "", list[str]()
        for line in (*passage.split("\n"), None):
            label = _LABEL.match(line) if line is not None else None
            if line is None or label:
                text = shown_text("\n".join(lines).strip()[:_NOTE_LENGTH_MAX])
                if name and text:
                    found.setdefault(name, text)
            if line is not None and label:
                name, lines = str(label.lastgroup), [line[label.end() :]]
            elif line is not None:
                lines.append(line)
    claim = _CLAIM.match(found.pop("claim", ""))
    return Notes(**found, claim=claim[1].lower() if claim else "")


def _tidy(source: str) -> str:
    return "\n".join(line.rstrip() for line in plain(source).split("\n")).strip("\n")
