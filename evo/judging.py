"""Judging a generation: evaluate what is new, remember it, give each child its fitness and each question its credit."""

from collections.abc import Callable, Sequence
from typing import Protocol

from evo.history import Attempt, History, Outcome
from evo.noise import noise
from evo.result import evaluation_of
from evo.stop import StopSearch
from fitness.evaluation import Evaluation, Status
from population.archive import Archive
from population.atomic_file import strict_json
from population.individual import Individual, set_fitness
from population.records import EvaluationRecord
from questions.credit import Outcome as QuestionOutcome
from questions.sampler import QuestionSampler

_NEVER_RAN = (Status.INVALID, Status.UNSUPPORTED, Status.COMPILE_ERROR)


class EvaluatesAll(Protocol):
    """Whoever turns sources into evaluations: a device, or a table of earlier measurements."""

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """One evaluation a source, in the sources' order; `on_done` hears of each as it is finished."""


class Judging:
    """The evaluate step of the loop. Evaluations that the archive already holds are used, never made again."""

    def __init__(
        self,
        *,
        evaluator: EvaluatesAll,
        archive: Archive,
        history: History,
        sampler: QuestionSampler,
        budget: int | None,
        on_judged: Callable[[Individual, Evaluation], None],
    ) -> None:
        self._evaluator = evaluator
        self._archive = archive
        self._history = history
        self._sampler = sampler
        self._budget = budget
        self._on_judged = on_judged

    def evaluate(self, offspring: Sequence[Individual]) -> None:
        """Judge them all and credit the questions behind them. Raises StopSearch where the budget ends before."""
        waiting = [individual for individual in offspring if not self._recall(individual)]
        room = len(waiting) if self._budget is None else max(0, self._budget - self._archive.evaluation_count())
        self._measure(waiting[:room])
        if room < len(waiting):
            raise StopSearch(f"evaluation budget reached: {self._budget} of {self._budget}")
        for individual in offspring:
            set_fitness(individual, self._history.geomean(individual.id))

    def credit(self, attempts: Sequence[Attempt]) -> None:
        """Tell the sampler what became of a generation's questions. An answerer's failure is no question's fault."""
        for attempt in attempts:
            if attempt.outcome is not Outcome.UNANSWERED:
                self._sampler.credit(attempt.question_id, question_outcome(self._history, attempt))

    def _recall(self, individual: Individual) -> bool:
        recorded = evaluation_of(self._archive, individual.id)
        if recorded is None:
            return False
        self._history.add_evaluation(individual.id, recorded)
        self._on_judged(individual, recorded)
        return True

    def _measure(self, individuals: Sequence[Individual]) -> None:
        def keep(place: int, evaluation: Evaluation) -> None:
            individual = individuals[place]
            self._archive.record_evaluation(
                EvaluationRecord(
                    individual_id=individual.id,
                    key=evaluation.key,
                    status=str(evaluation.status),
                    geomean=evaluation.geomean,
                    record=strict_json(evaluation.to_json()),
                )
            )
            self._history.add_evaluation(individual.id, evaluation)
            self._on_judged(individual, evaluation)

        self._evaluator.evaluate_all([individual.source for individual in individuals], on_done=keep)


def question_outcome(history: History, attempt: Attempt) -> QuestionOutcome:
    """What became of one question, as far as its child was judged."""
    evaluation = history.evaluation(attempt.child_id) if attempt.child_id else None
    if attempt.outcome is not Outcome.CHILD or evaluation is None:
        return QuestionOutcome(answered=attempt.outcome is not Outcome.UNREADABLE)
    return QuestionOutcome(
        answered=True,
        compiled=evaluation.status not in _NEVER_RAN,
        right=evaluation.status in (Status.PASSED, Status.STOPPED_EARLY),
        gain=history.gain(attempt),
        noise=noise(evaluation),
    )
