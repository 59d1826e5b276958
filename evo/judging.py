"""Judging a generation: evaluate what is new, remember it, give each child its fitness and each question its credit."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from evo.auditing import Auditing
from evo.evaluation_records import evaluation_of, record_evaluation
from evo.history import Attempt, History, Outcome
from evo.noise import noise
from evo.stop import EnvironmentBroken, StopSearch
from fitness.evaluation import Evaluation, Status
from fitness.faults import BaselineUnavailableError, EnvironmentFault
from fitness.race import Bar, raise_bar
from population.archive import Archive
from population.individual import Individual, set_fitness
from questions.credit import Outcome as QuestionOutcome
from questions.sampler import QuestionSampler

logger = logging.getLogger(__name__)

MAX_FAULTS = 3  # of the environment in a row

_NEVER_RAN = (Status.INVALID, Status.UNSUPPORTED, Status.COMPILE_ERROR)


class EvaluatesAll(Protocol):
    """Whoever turns sources into evaluations: a device, or a table of earlier measurements."""

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """One evaluation a source, in the sources' order; `on_done` hears of each as it is finished."""


@runtime_checkable
class Races(Protocol):
    """An evaluator that can be told what candidates have to reach."""

    def against(self, bar: Bar | None) -> EvaluatesAll:
        """The same, ending the timing of a candidate once it can no longer reach the bar."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """Sets the bar anew for every generation: the `place`-th best of all before it, which is who survives."""

    evaluator: Races
    place: int

    def start(self, history: History) -> EvaluatesAll:
        """The evaluator for candidates that have to get among the best so far."""
        return self.evaluator.against(raise_bar(history.evaluations(), self.place))


def race_with(evaluator: EvaluatesAll, *, place: int) -> Race | None:
    """A race for the `place` best; None for an evaluator that times nothing itself."""
    return Race(evaluator=evaluator, place=place) if isinstance(evaluator, Races) else None


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
        auditing: Auditing | None = None,
        race: Race | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._archive = archive
        self._history = history
        self._sampler = sampler
        self._budget = budget
        self._on_judged = on_judged
        self._auditing = auditing
        self._race = race

    @property
    def evaluator(self) -> EvaluatesAll:
        """What measures."""
        return self._evaluator

    def evaluator_now(self) -> EvaluatesAll:
        """The same, with the bar that the best so far have raised, where there is a race."""
        return self._evaluator if self._race is None else self._race.start(self._history)

    def evaluate(self, offspring: Sequence[Individual]) -> None:
        """Judge them all and credit the questions behind them. Raises StopSearch where the budget ends before.

        It also ends after three faults of the environment in a row; fewer are tried again. What was measured is kept.
        """
        evaluator = self.evaluator_now()
        waiting = [each for each in offspring if evaluation_of(self._archive, each.id) is None]
        room = len(waiting) if self._budget is None else max(0, self._budget - self._archive.evaluation_count())
        beyond = {individual.id for individual in waiting[room:]}
        self._settle_patiently([each for each in offspring if each.id not in beyond], evaluator)
        if room < len(waiting):
            raise StopSearch(f"evaluation budget reached: {self._budget} of {self._budget}")
        for individual in offspring:
            set_fitness(individual, self._history.geomean(individual.id))

    def judge(self, individual: Individual, evaluation: Evaluation) -> None:
        """Keep what was measured of one, audit it where it is suspicious, give it its fitness.

        Raises EnvironmentFault from its audit; what was measured is kept.
        """
        if evaluation_of(self._archive, individual.id) is None:
            record_evaluation(self._archive, individual.id, evaluation)
        self._settle(individual, evaluation, set())
        set_fitness(individual, self._history.geomean(individual.id))

    def credit(self, attempts: Sequence[Attempt]) -> None:
        """Tell the sampler what became of a generation's questions. An answerer's failure is no question's fault."""
        for attempt in attempts:
            if attempt.outcome is not Outcome.UNANSWERED:
                self._sampler.credit(attempt.question_id, question_outcome(self._history, attempt))

    def _settle_patiently(self, individuals: Sequence[Individual], evaluator: EvaluatesAll) -> None:
        """Settle them all, trying again after a fault of the environment. Raises EnvironmentBroken for too many."""
        settled: set[str] = set()
        faults = 0
        while True:
            before = len(settled)
            try:
                self._settle_all(individuals, evaluator, settled)
                return
            except BaselineUnavailableError:
                raise  # it will not come by itself
            except EnvironmentFault as fault:
                faults = 1 if len(settled) > before else faults + 1
                logger.warning("fault %d of the environment: %s", faults, fault)
                if faults == MAX_FAULTS:
                    raise EnvironmentBroken(faults, fault) from fault

    def _settle_all(self, individuals: Sequence[Individual], evaluator: EvaluatesAll, settled: set[str]) -> None:
        """Recall what the archive holds, measure the rest; `settled` tells, after a fault too, who is done with."""
        missing = []
        for individual in individuals:
            if individual.id in settled:
                continue
            recorded = evaluation_of(self._archive, individual.id)
            if recorded is None:
                missing.append(individual)
            else:
                self._settle(individual, recorded, settled)

        def keep(place: int, evaluation: Evaluation) -> None:
            record_evaluation(self._archive, missing[place].id, evaluation)
            self._settle(missing[place], evaluation, settled)

        evaluator.evaluate_all([individual.source for individual in missing], on_done=keep)

    def _settle(self, individual: Individual, evaluation: Evaluation, settled: set[str]) -> None:
        """Audit it where it is suspicious, remember it, tell of it."""
        judged = self._auditing.judged(individual, evaluation) if self._auditing else evaluation
        self._history.add_evaluation(individual.id, judged)
        self._on_judged(individual, judged)
        settled.add(individual.id)


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
