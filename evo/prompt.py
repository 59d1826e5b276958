"""From what is known of a parent to the text that is put to an answerer. The style decides the hint's phrasing only."""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from questions.question import Style

_TEMPLATES: Final = Path(__file__).parent / "templates"
_REQUIRED: Final = frozenset({"contract", "answer_format", "parents", "hint"})
_FIGURES_HEAD: Final = "| scenario | kernel ms | baseline ms | speedup | share of the roof |"
_OPTIONAL: Final = frozenset({"attempts", "compiler_message", "reply_error", "question"})
_TITLES: Final = ("# The kernel", "# A second kernel, whose strengths the first may take over")
_NO_TOOLS: Final = "Answer from this text alone: open no file, run nothing."
_TOOLS: Final = (
    "Before you answer you may call these tools on drafts, {calls} calls in all, and use nothing else. Then answer in "
    "the form that is given above: the first reply without a call counts, and is judged afresh.\n\n{tools}"
)
_HINTS: Final[Mapping[Style, str]] = MappingProxyType(
    {
        Style.QUESTION: "Question: $question",
        Style.IMPERATIVE: "Instruction: $question",
        Style.INFORMATION: "Information: $question",
        Style.PRESCRIPTION: "Change to make: $question",
        Style.OPEN: "$question",
        Style.BARE: "",
    }
)
_LINE_LENGTH_MAX: Final = 300
_EMPTY_LINE: Final = re.compile(r"^\$\{?(\w+)\}?\n\n?", re.MULTILINE)  # a line of the frame that is one part
_BACKTICKS: Final = re.compile(r"`+")


class PromptError(Exception):
    """The prompt cannot be built: the template is wrong, or the kernel alone exceeds the budget."""


@dataclass(frozen=True, kw_only=True)
class ScenarioFigure:
    """One scenario of a parent beside the baseline; speedup = baseline_ms / candidate_ms."""

    name: str
    candidate_ms: float
    baseline_ms: float
    speedup: float
    roof_share: float | None = None  # the time that the device's roof would allow / candidate_ms


@dataclass(frozen=True, kw_only=True)
class BuildFigure:
    """What the compiler said of one kernel in one build."""

    build: str
    kernel: str
    registers: int
    spill_bytes: int  # stores and loads
    shared_bytes: int  # static
    advisories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParentPart:
    """A parent: its source, and what is known of it."""

    source: str
    status: str = "PASSED"
    geomean: float | None = None
    scenarios: tuple[ScenarioFigure, ...] = ()
    builds: tuple[BuildFigure, ...] = ()
    left_out: int = 0  # scenarios cut for length


@dataclass(frozen=True, kw_only=True)
class AttemptPart:
    """An earlier attempt on this lineage."""

    change: str
    status: str
    reason: str = ""  # why it is not PASSED
    gain: float | None = None  # its geomean / its parent's


@dataclass(frozen=True, kw_only=True)
class ToolsPart:
    """The tools that may be called before the answer: what each gives, by its name, and how many calls there are."""

    tools: tuple[tuple[str, str], ...]
    calls: int


@dataclass(frozen=True, kw_only=True)
class PromptParts:
    """What a prompt is made of; attempts from the oldest to the newest, texts "" where there is nothing to say."""

    style: Style
    question: str = ""  # the phrase in its style; not looked at where the style has none of its own
    parents: tuple[ParentPart, ...]  # two for a crossover
    device: str
    baseline: str
    attempts: tuple[AttemptPart, ...] = ()
    compiler_message: str = ""
    reply_error: str = ""  # for a re-ask: why the last reply could not be read
    attempts_left_out: int = 0
    tools: ToolsPart | None = None  # None: the answer is to come from the prompt alone

    def __post_init__(self) -> None:
        if not 1 <= len(self.parents) <= len(_TITLES):
            raise ValueError(f"a prompt has one parent or two, not {len(self.parents)}")


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """The words of a prompt. `frame` names its parts as string.Template does, and is filled in once.

    $contract, $answer_format, $parents, $attempts, $compiler_message, $reply_error, $hint (or $question, the bare
    phrase). Raises PromptError for a frame that lacks a part no prompt can do without, or names another.
    """

    frame: str
    contract: str
    answer_format: str

    def __post_init__(self) -> None:
        if not string.Template(self.frame).is_valid():
            raise PromptError("prompt template: a $ neither begins a name nor is doubled")
        names = set(string.Template(self.frame).get_identifiers())
        missing = sorted(_REQUIRED - names - ({"hint"} if "question" in names else set()))
        unknown = sorted(names - _REQUIRED - _OPTIONAL)
        if missing or unknown:
            wrong = [f"lacks ${name}" for name in missing] + [f"names ${name}, which is no part" for name in unknown]
            raise PromptError(f"prompt template: it {', '.join(wrong)}")


def load_template(path: Path | None = None) -> PromptTemplate:
    """The shipped template, or the one at `path` with the shipped rules and form. Raises PromptError, OSError."""
    frame, contract, answer_format = (
        file.read_text(encoding="utf-8").rstrip("\n")
        for file in (path or _TEMPLATES / "prompt.md", _TEMPLATES / "contract.md", _TEMPLATES / "answer_format.md")
    )
    return PromptTemplate(frame=frame, contract=contract, answer_format=answer_format)


def estimate_tokens(text: str) -> int:
    """A text's length in tokens, by a rule that needs no tokeniser: bytes / 3, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def build_prompt(parts: PromptParts, template: PromptTemplate, budget_tokens: int) -> str:
    """The prompt, at most `budget_tokens` long.

    What exceeds the budget is cut in this order: attempts but the newest, from the oldest; the compiler's message, its
    last half at a time; the scenarios but the slowest and the fastest, by speedup; the compiler's figures; the newest
    attempt. Never the source, the rules, the form of the reply, the hint or the tools. Raises PromptError where those
    alone are too long, or the question has no text in its style.
    """
    tokens = 0
    for shorter in _ever_shorter(parts):
        prompt = _render(shorter, template)
        tokens = estimate_tokens(prompt)
        if tokens <= budget_tokens:
            return prompt
    raise PromptError(
        f"the kernel and the rules alone take {tokens} tokens, the budget is {budget_tokens}; raise style.budget_tokens"
    )


def _ever_shorter(parts: PromptParts) -> Iterator[PromptParts]:
    yield parts
    while len(parts.attempts) > 1:
        parts = replace(parts, attempts=parts.attempts[1:], attempts_left_out=parts.attempts_left_out + 1)
        yield parts
    while parts.compiler_message:
        half = parts.compiler_message[: len(parts.compiler_message) // 2]
        parts = replace(parts, compiler_message=half.rpartition("\n")[0])
        yield parts
    parts = replace(parts, parents=tuple(_extremes_only(parent) for parent in parts.parents))
    yield parts
    parts = replace(parts, parents=tuple(replace(parent, builds=()) for parent in parts.parents))
    yield parts
    yield replace(parts, attempts=(), attempts_left_out=parts.attempts_left_out + len(parts.attempts))


def _extremes_only(parent: ParentPart) -> ParentPart:
    if len(parent.scenarios) <= 2:
        return parent
    by_speedup = sorted(parent.scenarios, key=lambda figure: figure.speedup)
    return replace(parent, scenarios=(by_speedup[0], by_speedup[-1]), left_out=len(parent.scenarios) - 2)


def _render(parts: PromptParts, template: PromptTemplate) -> str:
    question, hint = parts.question.strip(), _HINTS[parts.style]
    if "$question" in hint and not question:
        raise PromptError(f"style {parts.style}: the question has no text in this style")
    texts = {
        "contract": template.contract,
        "answer_format": template.answer_format,
        "parents": "\n\n".join(_parent_section(parts, *pair) for pair in zip(_TITLES, parts.parents, strict=False)),
        "attempts": _attempts_section(parts),
        "compiler_message": _fenced_section("What the compiler said", parts.compiler_message),
        "reply_error": _fenced_section("The last reply could not be read; this is why", parts.reply_error),
        "question": question,
        "hint": hint.replace("$question", question),
    }
    frame = _EMPTY_LINE.sub(lambda line: line[0] if texts[line[1]] else "", template.frame)
    return f"{string.Template(frame).substitute(texts).rstrip()}\n\n{_ending(parts.tools)}\n"


def _ending(part: ToolsPart | None) -> str:
    if part is None:
        return _NO_TOOLS
    return _TOOLS.format(calls=part.calls, tools="\n".join(f"- {name}: {gives}" for name, gives in part.tools))


def _parent_section(parts: PromptParts, title: str, parent: ParentPart) -> str:
    pieces = [title, _fenced(parent.source, "cuda"), _figures(parts, parent), _builds(parent.builds)]
    return "\n\n".join(piece for piece in pieces if piece)


def _figures(parts: PromptParts, parent: ParentPart) -> str:
    if not parent.scenarios:
        return f"It has no measurements: {parent.status}."
    worst = min(parent.scenarios, key=lambda figure: figure.speedup)
    mean = "" if parent.geomean is None else f" Geometric mean of the speedups: {parent.geomean:.4f}."
    rows = [
        f"| {figure.name} | {figure.candidate_ms:.4f} | {figure.baseline_ms:.4f} | {figure.speedup:.3f}"
        f"{' (worst)' if figure is worst else ''} | {_percent(figure.roof_share)} |"
        for figure in parent.scenarios
    ]
    if parent.left_out:
        rows.append(f"\n(Left out for length: {parent.left_out} scenarios between these two.)")
    head = f"Measured on {parts.device} beside {parts.baseline}.{mean}"
    return "\n".join((head, "", _FIGURES_HEAD, "|---|---|---|---|---|", *rows))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _builds(builds: Sequence[BuildFigure]) -> str:
    lines = [
        f"- {build.kernel}, {build.build}: {build.registers} registers, {build.spill_bytes} bytes spilled, "
        f"{build.shared_bytes} bytes of static shared memory{''.join(f'; {_one_line(a)}' for a in build.advisories)}"
        for build in builds
    ]
    return "\n".join(("From the compiler:", *lines)) if lines else ""


def _attempts_section(parts: PromptParts) -> str:
    if not parts.attempts and not parts.attempts_left_out:
        return ""
    left_out = [f"(Left out for length: {parts.attempts_left_out} older.)"] if parts.attempts_left_out else []
    return "\n".join(("# Earlier attempts on this line, oldest first", "", *left_out, *map(_attempt, parts.attempts)))


def _attempt(attempt: AttemptPart) -> str:
    gain = "" if attempt.gain is None else f", {attempt.gain:.3f} times its parent's score"
    reason = f" ({_one_line(attempt.reason)})" if attempt.reason else ""
    return f"- {attempt.status}{gain}{reason}: {_one_line(attempt.change) or 'change not described'}"


def _fenced_section(title: str, text: str) -> str:
    return f"# {title}\n\n{_fenced(text, 'text')}" if text.strip() else ""


def _fenced(text: str, tag: str) -> str:
    """The text as it stands, in a fence longer than any row of backticks in it."""
    longest = max((len(row) for row in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{tag}\n{text}{end}{fence}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_LENGTH_MAX else line[: _LINE_LENGTH_MAX - 1] + "…"
