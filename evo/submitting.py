"""An evaluator as one that measures while its caller does something else, and is told when each is done."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from evo.judging import EvaluatesAll
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault


@runtime_checkable
class Submits(Protocol):
    """An evaluator that measures while its caller does something else."""

    def submit(self, source: str) -> "Future[Evaluation]":
        """The record to come. It raises EnvironmentFault where something else than the candidate is at fault."""

    def drop(self, outcomes: "Iterable[Future[Evaluation]]") -> None:
        """Let go of what was submitted, and of everything else under way."""


@dataclass(frozen=True)
class AtOnce:
    """Submits to an evaluator that answers at once, from a table."""

    evaluator: EvaluatesAll

    def submit(self, source: str) -> "Future[Evaluation]":
        """See Submits."""
        outcome: Future[Evaluation] = Future()
        try:
            outcome.set_result(self.evaluator.evaluate_all([source])[0])
        except EnvironmentFault as fault:
            outcome.set_exception(fault)
        return outcome

    def drop(self, outcomes: "Iterable[Future[Evaluation]]") -> None:
        """See Submits; nothing is ever under way."""


def submitting(evaluator: EvaluatesAll) -> Submits:
    """The evaluator, as one that measures while its caller does something else."""
    return evaluator if isinstance(evaluator, Submits) else AtOnce(evaluator)
