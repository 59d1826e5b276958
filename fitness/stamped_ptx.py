"""A kernel's PTX with stamps: each warp notes the clocks of its SM when it begins and when it ends.

The source is left alone. What the compiler made of it gets a few instructions at the start of every kernel and before
every place where threads end, so that the time from the first beginning to the last end can be read off the device
itself, whatever the clock outside says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

STAMPS = "evo_stamps"  # a variable of the module
MOST_SMS = 1024  # a power of two
WORDS = 4  # for each SM: the first cycle, the last, the first nanosecond, the last
_OURS = re.compile(rf"\b{STAMPS}\b|[%$]evo_")
_UNREAD = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/|\.loc\s+\d+\s+\d+\s+\d+', re.DOTALL)
_ADDRESS_SIZE = re.compile(r"\.address_size\s+64\b")
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")
_DIRECTIVE = re.compile(r"\s*(?:\.(?:loc|file)\b[^\n]*|\.[^;{}]*;)")
_END = re.compile(r"(?:@(?P<no>!?)\s*(?P<predicate>[\w$%]+)\s+)?\b(?P<how>ret|exit)\s*(?:\.\s*uni\s*)?;")
_STAMP = """
{{  // the lowest lane that is here speaks for its warp
    .reg .pred %evo_speaks;
    .reg .b32 %evo_lanes, %evo_sm;
    .reg .b64 %evo_cycle, %evo_time, %evo_place;
    mov.u64 %evo_cycle, %clock64;
    mov.u64 %evo_time, %globaltimer;
    activemask.b32 %evo_lanes;
    mov.u32 %evo_sm, %lanemask_lt;
    and.b32 %evo_lanes, %evo_lanes, %evo_sm;
    setp.eq.u32 %evo_speaks, %evo_lanes, 0;
    mov.u32 %evo_sm, %smid;
    and.b32 %evo_sm, %evo_sm, {last_sm};
    mov.u64 %evo_place, {stamps};
    mad.wide.u32 %evo_place, %evo_sm, {sm_bytes}, %evo_place;
    @%evo_speaks red.global.{which}.u64 [%evo_place+{cycle}], %evo_cycle;
    @%evo_speaks red.global.{which}.u64 [%evo_place+{time}], %evo_time;
}}
"""
_LAYOUT = {"stamps": STAMPS, "last_sm": MOST_SMS - 1, "sm_bytes": 8 * WORDS}
_BEGIN = _STAMP.format(**_LAYOUT, which="min", cycle=0, time=16)
_DONE = _STAMP.format(**_LAYOUT, which="max", cycle=8, time=24)


@dataclass(frozen=True, kw_only=True)
class StampedPtx:
    """The text, and the kernels that leave stamps."""

    text: str
    kernels: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Body:
    """A kernel's name, and where the text between its outermost braces begins and ends."""

    kernel: str
    start: int
    end: int


def stamp(ptx: str) -> StampedPtx:
    """The same kernels, each warp of which notes in `STAMPS` when it began and ended.

    `STAMPS` is u64 `[MOST_SMS, WORDS]`; the first of each pair takes the least value, the second the greatest. Raises
    ValueError for a text that is not written as NVRTC writes it.
    """
    if _OURS.search(ptx):
        raise ValueError(f"the text uses {STAMPS} or a register %evo_… itself")
    text = _UNREAD.sub(lambda found: " " * len(found[0]), ptx)  # the same places, and nothing but code
    head = _ADDRESS_SIZE.search(text)
    if head is None:
        raise ValueError("the text has no .address_size 64")
    bodies = tuple(_bodies(text))
    edits = [(head.end(), head.end(), f"\n.visible .global .align 32 .b64 {STAMPS}[{MOST_SMS * WORDS}];\n")]
    edits += [(place, place, _BEGIN) for place in (_first_instruction(text, body) for body in bodies)]
    edits += _ends(text, bodies)
    return StampedPtx(text=_edited(ptx, edits), kernels=frozenset(body.kernel for body in bodies))


def _bodies(text: str) -> Iterator[_Body]:
    for entry in _ENTRY.finditer(text):
        opening = re.compile(r"[{;]").search(text, entry.end())
        if opening is None or opening[0] == ";":
            continue  # a declaration
        depth = 0
        for brace in re.compile(r"[{}]").finditer(text, opening.start()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                yield _Body(kernel=entry[1], start=opening.end(), end=brace.start())
                break
        else:
            raise ValueError(f"the body of {entry[1]} does not end")


def _first_instruction(text: str, body: _Body) -> int:
    """Behind the declarations."""
    place = body.start
    while directive := _DIRECTIVE.match(text, place, body.end):
        place = directive.end()
    return place


def _ends(text: str, bodies: tuple[_Body, ...]) -> Iterator[tuple[int, int, str]]:
    """A stamp before each instruction that ends threads: `exit` anywhere, `ret` where it does not return to a caller.

    One under a predicate is jumped over by the threads that do not end. A body that ends with none ends threads too.
    """
    open_ended = {body.end for body in bodies}
    for number, found in enumerate(_END.finditer(text)):
        if not _begins_statement(text, found.start()):
            continue  # another instruction's operand
        if found["how"] == "ret" and not any(body.start <= found.start() < body.end for body in bodies):
            continue
        if found["predicate"] is None:
            yield found.start(), found.start(), _DONE
            open_ended.discard(_past_space(text, found.end()))
        else:
            over = f"$evo_over_{number}"
            jump = f"@{'' if found['no'] else '!'}{found['predicate']} bra {over};"
            yield found.start(), found.end(), f"{jump}{_DONE}{found['how']};\n{over}:\n"
    yield from ((end, end, _DONE) for end in open_ended)


def _past_space(text: str, place: int) -> int:
    """Character by character: with a copy of the text for each of its ends, a long one would take hours."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _begins_statement(text: str, place: int) -> bool:
    while place > 0 and text[place - 1].isspace():
        place -= 1
    return place == 0 or text[place - 1] in ";{}:"


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts, place = list[str](), 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[place:start], new]
        place = end
    return "".join((*parts, text[place:]))
