"""From a question to a faster kernel: how many come how far."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from evo.history import Attempt, History, Outcome
from evo.judging import question_outcome
from evo.noise import beyond_noise


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """Counts of questions; each step is a part of the one before it, save that `right` is one of `compiled`."""

    questions: int = 0
    replies: int = 0  # the answerer brought one
    readable: int = 0
    new: int = 0  # a kernel that was not there before
    compiled: int = 0
    unwarned: int = 0  # of no build had the compiler an advisory; see foretells_collapse in fitness/compile_log.py
    right: int = 0  # every output of it
    faster: int = 0  # than its best parent, by beyond_noise in evo/noise.py

    def __add__(self, other: "Funnel") -> "Funnel":
        return Funnel(**{name: getattr(self, name) + getattr(other, name) for name in STEPS})


STEPS = tuple(each.name for each in fields(Funnel))


def funnel_of(attempts: Sequence[Attempt], history: History) -> Funnel:
    """The funnel of these questions, all of them of complete generations."""
    return sum((_funnel_of_one(attempt, history) for attempt in attempts), Funnel())


def _funnel_of_one(attempt: Attempt, history: History) -> Funnel:
    outcome = question_outcome(history, attempt)
    child = history.evaluation(attempt.child_id) if outcome.compiled and attempt.child_id else None
    gain, parent = outcome.gain, history.best_parent(attempt)
    replied = attempt.outcome is not Outcome.UNANSWERED
    return Funnel(
        questions=1,
        replies=int(replied),
        readable=int(replied and outcome.answered),
        new=int(attempt.outcome is Outcome.CHILD),
        compiled=int(outcome.compiled),
        unwarned=int(child is not None and not any(build.advisories for build in child.builds)),
        right=int(outcome.right),
        faster=int(gain is not None and gain > 1 and beyond_noise(gain, outcome.noise, history.noise(parent))),
    )
