"""The rows of the archive, as they go in and come out. What other packages recorded crosses as JSON text."""

import math
from dataclasses import dataclass

from population.atomic_file import parse_json


@dataclass(frozen=True, kw_only=True)
class Birth:
    """An individual without its source: enough for a family tree and for statistics."""

    id: str
    source_sha256: str
    birth: int
    generation: int
    operator: str
    parent_ids: tuple[str, ...]
    question_id: str | None


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """One evaluation: what queries need in columns, all of it in `record`, strict JSON.

    Raises ValueError for a geomean that is not finite, and for text that is no strict JSON.
    """

    individual_id: str
    key: str
    status: str
    geomean: float | None
    record: str

    def __post_init__(self) -> None:
        if self.geomean is not None:
            _require_finite(f"evaluation {self.key}: geomean", self.geomean)  # SQLite would make NULL of NaN
        parse_json(self.record)


@dataclass(frozen=True, kw_only=True)
class Score:
    """An evaluation without its record."""

    individual_id: str
    key: str
    status: str
    geomean: float | None


@dataclass(frozen=True, kw_only=True)
class PromptRecord:
    """What was sent for one attempt at one mutation."""

    number: int  # the mutation's
    attempt: int
    text: str


@dataclass(frozen=True, kw_only=True)
class ReplyRecord:
    """What came back, unread, and what it cost. Raises ValueError for a cost that is not finite."""

    number: int
    attempt: int
    text: str
    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    estimated: bool  # the tokens are an estimate of ours
    used_tools: bool = False  # whoever answered could open files or run code, by its user's word

    def __post_init__(self) -> None:
        _require_finite(f"reply {self.number}/{self.attempt}: cost_usd", self.cost_usd)


@dataclass(frozen=True, kw_only=True)
class QuestionRecord:
    """The question that one mutation asked, as it was phrased."""

    number: int
    question_id: str
    moment: str
    layer: str
    style: str
    text: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """Anything else worth keeping. With a `key`, one kind has it once; without, events may repeat."""

    kind: str
    record: str  # strict JSON
    key: str | None = None

    def __post_init__(self) -> None:
        parse_json(self.record)


@dataclass(frozen=True, kw_only=True)
class SpendRecord:
    """What was spent besides replies, such as device seconds or calls that brought no reply.

    Raises ValueError for an amount that is not finite.
    """

    key: str  # what it was spent on; unique together with `kind`
    kind: str  # with its unit: "evaluation_s", "cost_usd"
    amount: float

    def __post_init__(self) -> None:
        _require_finite(f"spend {self.key}: {self.kind}", self.amount)


def _require_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}; expected a finite number")
