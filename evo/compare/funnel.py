"""From a question to a faster kernel: how many come how far."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from evo.history import Attempt, History, Outcome
from evo.judging import question_outcome


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """Counts of questions; each step is a part of the one before it."""

    questions: int = 0
    replies: int = 0  # the answerer brought one
    readable: int = 0
    new: int = 0  # a kernel that was not there before
    compiled: int = 0
    right: int = 0  # every output of it
    faster: int = 0  # than its best parent, by more than measuring could produce

    def __add__(self, other: "Funnel") -> "Funnel":
        return Funnel(**{name: getattr(self, name) + getattr(other, name) for name in STEPS})


STEPS = tuple(each.name for each in fields(Funnel))


def funnel_of(attempts: Sequence[Attempt], history: History) -> Funnel:
    """The funnel of these questions, all of them of complete generations."""
    return sum((_funnel_of_one(attempt, history) for attempt in attempts), Funnel())


def _funnel_of_one(attempt: Attempt, history: History) -> Funnel:
    outcome = question_outcome(history, attempt)
    replied = attempt.outcome is not Outcome.UNANSWERED
    return Funnel(
        questions=1,
        replies=int(replied),
        readable=int(replied and outcome.answered),
        new=int(attempt.outcome is Outcome.CHILD),
        compiled=int(outcome.compiled),
        right=int(outcome.right),
        faster=int(outcome.gain is not None and outcome.gain > 1 + outcome.noise),
    )
