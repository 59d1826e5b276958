"""A question: one hypothesis about a kernel, phrased so that measuring can answer it."""

from dataclasses import dataclass
from enum import StrEnum


class Layer(StrEnum):
    """What part of the system a question is about."""

    ALGORITHM = "algorithm"
    SCHEDULE = "schedule"
    MEMORY = "memory"
    INSTRUCTIONS = "instructions"
    LAUNCH = "launch"
    MEASUREMENT = "measurement"


class Moment(StrEnum):
    """When a question is worth asking."""

    ANY = "any"
    STALL = "stall"
    LIMIT_DECLARED = "limit_declared"
    DONE_DECLARED = "done_declared"
    BIG_WIN = "big_win"
    INCORRECT = "incorrect"
    COMPILE_FAILURE = "compile_failure"
    SLOWER = "slower"
    CROSSOVER = "crossover"


class Style(StrEnum):
    """How the same content is phrased; the one thing that a comparison of styles varies."""

    QUESTION = "question"
    IMPERATIVE = "imperative"
    INFORMATION = "information"
    PRESCRIPTION = "prescription"
    OPEN = "open"
    BARE = "bare"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One entry of the bank, with the same content in the other phrasings for paired comparison."""

    id: str
    text: str
    layer: Layer
    moments: tuple[Moment, ...]
    hypothesis: str
    measurement: str  # what would answer it
    targets: tuple[str, ...]  # portable | sm_80 | sm_90a | sm_100a: where it makes sense
    imperative: str
    information: str
    prescription: str | None = None
    origin: str = "bank"  # or the person or run that it came from
