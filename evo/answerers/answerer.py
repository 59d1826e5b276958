"""The seam to whoever answers: a request goes out, a reply comes back, and neither side knows more of the other."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question about one parent, as text, with what an answerer without a language model needs to go by."""

    number: int  # the running number of the mutation: the same number asks the same thing after a resume
    attempt: int  # 0, or 1 for the one re-ask that quotes an unreadable reply's error
    prompt: str
    layer: str  # the question's layer
    parent_sources: tuple[str, ...]  # two for a crossover


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a reply cost. `estimated` where the server gave no usage and bytes / 3 stood in."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0  # with what lost responses to the same request may have cost
    estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call of a tool that a model made on its way to a reply."""

    order: int  # among the calls of its reply, from 0
    name: str
    arguments: str  # as the model wrote them
    result: str  # as the model was told it
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answerer's raw text, unread."""

    text: str
    model: str  # the model's name, or "offline"
    finish_reason: str = "stop"  # "length" where it was cut off
    usage: Usage = field(default_factory=Usage)
    used_tools: bool = False  # it called ours; else whether it could open files or run code, by its user's word
    tool_calls: tuple[ToolCall, ...] = ()


class Answerer(Protocol):
    """Someone who answers questions about kernels."""

    @property
    def description(self) -> str:
        """One line for the head of a run: who answers, and what that means for its results."""

    def answer(self, request: Request) -> Reply:
        """The reply to one request; may be called from several threads. Raises AnswererError.

        Raises EnvironmentFault too where the model may call tools.
        """


class AnswererError(Exception):
    """No reply was had. `hint` says what to do; `retryable` whether asking again could help.

    `usage` is what it cost all the same, `tool_calls` what was called on the way.
    """

    def __init__(self, message: str, *, hint: str, retryable: bool) -> None:
        super().__init__(f"{message} ({hint})")
        self.hint = hint
        self.retryable = retryable
        self.usage = Usage()
        self.tool_calls: tuple[ToolCall, ...] = ()
