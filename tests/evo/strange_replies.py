"""Replies as models give them, each to a question about a parent of four knobs, and what must come of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from knob_model import edit, turned

from evo.history import Outcome

DELETION = "<<<<<<< SEARCH\n    params.o[threadIdx.x] = to_element(0.0f);\n=======\n>>>>>>> REPLACE\n"
SKETCH = "```cuda\n__global__ void sketch() {}\n```\n"


@dataclass(frozen=True, kw_only=True)
class Strange:
    """A reply, made of the parent's source: its text, in which field it stands, and what is said beside it."""

    name: str
    text: Callable[[str], str]
    outcome: Outcome
    place: str = "content"
    said: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def message(self, parent: str) -> dict[str, str | None]:
        """The fields of a chat completion's message, and why it ended."""
        return {"content": None, self.place: self.text(parent), **self.said}


def whole(source: str, fence: str = "```", tag: str = "cuda") -> str:
    """A whole file in a fence."""
    return f"{fence}{tag}\n{source}{fence}\n"


def typeset(source: str) -> str:
    """The source as a word processor would have it."""
    return source.replace('"', "\u201d").replace("= 1\n", "=\u00a01\n", 1).replace("{", "\u200b{", 1)


def half_an_answer(parent: str) -> str:
    """Two edits, of which one is of no line of the parent."""
    return edit(parent, turned(parent, 1)) + edit(parent, turned(parent, 2)).replace("SEARCH\n", "SEARCH\nno ")


def thought_over(parent: str) -> str:
    """A draft that was thought of, a sketch, and then the file."""
    return f"<think>\n{whole('/*evo')}</think>\n{SKETCH}{whole(turned(parent, 2))}"


REPLIES = (
    Strange(
        name="R1 blanks and CRLF",
        text=lambda parent: edit(parent, turned(parent, 0)).replace("\n", "  \r\n"),
        outcome=Outcome.CHILD,
    ),
    Strange(name="R2 half an answer", text=half_an_answer, outcome=Outcome.UNREADABLE),
    Strange(
        name="R3 a deletion and an edit",
        text=lambda parent: DELETION + edit(parent, turned(parent, 3)),
        outcome=Outcome.CHILD,
    ),
    Strange(name="R4 the parent again", text=whole, outcome=Outcome.NO_CHANGE),
    Strange(
        name="R5 cut off",
        text=lambda parent: whole(turned(parent, 1))[:-9],
        outcome=Outcome.UNREADABLE,
        said={"finish_reason": "length"},
    ),
    Strange(
        name="R6 tildes and a tag",
        text=lambda parent: whole(turned(turned(parent, 0), 0), "~~~", "CUDA "),
        outcome=Outcome.CHILD,
    ),
    Strange(name="R7 a draft, a sketch, the file", text=thought_over, outcome=Outcome.CHILD),
    Strange(
        name="R8 in the reasoning field",
        text=lambda parent: whole(turned(turned(parent, 2), 2)),
        outcome=Outcome.CHILD,
        place="reasoning_content",
    ),
    Strange(name="R8 a refusal", text=lambda _: "I can't.", outcome=Outcome.UNREADABLE, place="refusal"),
    Strange(name="R8 nothing", text=lambda _: "", outcome=Outcome.UNREADABLE),
    Strange(
        name="R9 no manifest", text=lambda parent: whole(parent.partition("*/\n")[2]), outcome=Outcome.UNREADABLE
    ),
    Strange(
        name="R10 curly quotes",
        text=lambda parent: whole(typeset(turned(turned(parent, 3), 1))),
        outcome=Outcome.CHILD,
    ),
    Strange(
        name="R11 braces",
        text=lambda parent: f"Change: {{threadIdx.x}} {{}} $hint\n{edit(parent, turned(parent, 1))}",
        outcome=Outcome.CHILD,
    ),
)
