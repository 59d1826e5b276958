"""The steps of a steady search: questions at the answerer and candidates at the evaluator, all at the same time.

Answering and measuring happen elsewhere; what comes of them is remembered and recorded by the caller's thread.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from deap import base

from evo.answerers.answerer import Answerer, AnswererError, Reply, Request
from evo.asking import Asked, Asker
from evo.config import Config
from evo.conversation import Conversation, Made
from evo.evaluation_records import evaluation_of
from evo.history import History
from evo.judging import MAX_FAULTS, EvaluatesAll, Judging
from evo.keeping import Keeper
from evo.loop import State
from evo.mutation import ATTEMPTS, Mutation, listen
from evo.open_questions import OpenQuestion, as_open, open_questions, record_asked, record_open
from evo.stop import EnvironmentBroken, StopSearch
from evo.submitting import submitting
from evo.tracking import Tracker
from fitness.evaluation import Evaluation
from fitness.faults import BaselineUnavailableError, EnvironmentFault
from fitness.pool import PooledEvaluator
from population.archive import Archive
from population.individual import Individual
from questions.sampler import QuestionSampler

logger = logging.getLogger(__name__)

_AHEAD = 2  # candidates for each worker: one that it measures, one that compiles meanwhile


@dataclass(kw_only=True, eq=False)
class _Open:
    """A question that is not settled."""

    conversation: Conversation
    attempt: int = 0
    request: Request | None = None  # at the answerer
    reply: "Future[Reply] | None" = None
    made: Made | None = None
    outcome: "Future[Evaluation] | None" = None  # at the evaluator
    remembered: bool = False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How much is to be under way."""

    answers: int  # at the answerer at the same time
    candidates: int  # at the evaluator, from which on no more are asked for
    evaluations: int | None  # in all: the budget


class UnderWay:
    """What is under way, and the steps that `evo.steady` calls. Used by the thread that opened the archive."""

    def __init__(
        self, *, mutation: Mutation, asker: Asker, answerer: Answerer, judging: Judging, archive: Archive,
        history: History, sampler: QuestionSampler, keeper: Keeper, take_in: Callable[[int], None], wanted: Wanted,
        tracker: Tracker,
    ) -> None:  # fmt: skip
        self._mutation = mutation
        self._asker = asker
        self._answerer = answerer
        self._judging = judging
        self._archive = archive
        self._history = history
        self._sampler = sampler
        self._keeper = keeper
        self._take_in = take_in
        self._wanted = wanted
        self._tracker = tracker
        self._threads = ThreadPoolExecutor(wanted.answers, thread_name_prefix="answering")
        self._notices: SimpleQueue[Callable[[], _Open | None]] = SimpleQueue()
        self._open: dict[int, _Open] = {}
        self._interrupted: dict[int, OpenQuestion] = {}
        self._asked_before: dict[int, OpenQuestion] = {}
        self._generation = 0
        self._faults = 0

    def has_room(self) -> bool:
        """Whether one more question is to be asked now."""
        measuring = sum(1 for each in self._open.values() if each.made is not None)
        asking = len(self._open) + len(self._interrupted) - measuring
        return asking < self._wanted.answers and measuring < self._wanted.candidates and self._left() > 0

    def ask(self, parents: tuple[Individual, ...], state: State) -> None:
        """Ask about one parent or two; under a number that was asked before an interruption, what was asked then.

        The draw is made all the same: every generator stands as it did after it.
        """
        number, state.next_birth = state.next_birth, state.next_birth + 1
        self._take_in(number)
        mark = self._sampler.mark()
        asked = self._asker.ask(parents, number=number, generation=state.generation + 1)
        now, before = as_open(asked), self._asked_before.pop(number, None)
        if before is None:
            record_asked(self._archive, now)
        elif before != now:  # then, something else was judged by this moment
            self._sampler.recall(before.question, since=mark)
            self._interrupted[number] = before
            self._ask_again()
            return
        self._begin(Conversation(asked=asked))

    def take_up(self, state: State) -> None:
        """Go on with what was under way when an earlier part of the run ended.

        What the checkpoint left open is asked now, for its draw is behind us; what was asked after it has its turn when
        `ask` comes to its number. Replies and evaluations that the archive holds are used, only what is missing is
        asked for and measured.
        """
        for found in open_questions(self._archive, state.generation, state.next_birth):
            waiting = self._interrupted if found.number < state.next_birth else self._asked_before
            waiting[found.number] = found
        self._ask_again()

    def hear(self, state: State) -> list[Individual | None]:
        """What the next word of the answerer or the evaluator settles: nothing yet, or one question.

        That is its child, judged, or None where it led to none. Raises StopSearch as `Mutation.vary` and
        `Judging.evaluate` do.
        """
        self._generation = state.generation + 1
        if not self._open:
            raise StopSearch("nothing is under way, and the evaluation budget has no room for another question")
        settled = self._notices.get()()
        if settled is None:
            return []
        del self._open[settled.conversation.asked.number]
        self._ask_again()
        return [settled.made.child if settled.made else None]

    def checkpoint(self, state: State) -> None:
        """Keep how things stand, and what is open."""
        record_open(self._archive, state.generation, {*self._open, *self._interrupted})
        self._keeper.save(state)

    def lay_down(self) -> None:
        """Drop what is measured; wait for replies under way and keep them: they are paid for."""
        if outcomes := [each.outcome for each in self._open.values() if each.outcome]:
            submitting(self._judging.evaluator).drop(outcomes)
        self._threads.shutdown(cancel_futures=True)
        for each in self._open.values():
            if each.request is None or each.reply is None or each.reply.cancelled():
                continue
            if isinstance(each.reply.exception(), AnswererError | None):
                self._mutation.keep(each.request, each.reply)

    def _ask_again(self) -> None:
        """Ask what an interruption left open, once its parents are judged: one of them may be open itself."""
        for number, found in sorted(self._interrupted.items()):
            if any(self._history.evaluation(parent) is None for parent in found.parent_ids):
                continue
            del self._interrupted[number]
            self._begin(Conversation(asked=self._as_of_now(found)))

    def _as_of_now(self, found: OpenQuestion) -> Asked:
        """A question that was chosen before, with the evidence as it is now."""
        parents = tuple(map(self._history.individual, found.parent_ids))
        return self._asker.again(
            parents, number=found.number, generation=found.generation, question=found.question, trigger=found.trigger,
            hint=found.hint,
        )  # fmt: skip

    def _begin(self, conversation: Conversation) -> None:
        entry = self._open[conversation.asked.number] = _Open(conversation=conversation)
        self._put(entry)

    def _put(self, entry: _Open) -> None:
        """Have the question answered, by the archive where it can."""
        request = self._mutation.outstanding(entry.conversation, entry.attempt)
        if request is None:
            self._notices.put(partial(self._heard, entry))
            return
        entry.request, entry.reply = request, self._threads.submit(self._answerer.answer, request)
        entry.reply.add_done_callback(lambda reply: self._notices.put(partial(self._answered, entry, request, reply)))

    def _answered(self, entry: _Open, request: Request, reply: "Future[Reply]") -> _Open | None:
        kept = self._mutation.keep(request, reply)
        entry.request = entry.reply = None
        listen(entry.conversation, kept)
        return self._heard(entry)

    def _heard(self, entry: _Open) -> _Open | None:
        """The entry where it is settled by its reply; else it is asked again, or its child measured."""
        if entry.conversation.to_be_asked_again and entry.attempt + 1 < ATTEMPTS:
            entry.attempt += 1
            asked = as_open(entry.conversation.asked)
            entry.conversation.asked = self._as_of_now(asked)  # after an interruption no other evidence is there
            self._put(entry)
            return None
        entry.made = self._mutation.made(entry.conversation, of_others=False)
        if entry.made.child is None:
            return self._remembered(entry)
        return self._measure(entry, entry.made.child)

    def _measure(self, entry: _Open, child: Individual) -> _Open | None:
        recorded = evaluation_of(self._archive, child.id)
        if recorded is not None:  # heard in its turn, as it was when it was measured
            self._notices.put(partial(self._judge, entry, child, recorded))
            return None
        if self._wanted.evaluations is not None and self._archive.evaluation_count() >= self._wanted.evaluations:
            raise StopSearch(f"evaluation budget reached: {self._wanted.evaluations} of {self._wanted.evaluations}")
        entry.outcome = submitting(self._judging.evaluator_now()).submit(child.source)
        entry.outcome.add_done_callback(lambda done: self._notices.put(partial(self._measured, entry, child, done)))
        return None

    def _measured(self, entry: _Open, child: Individual, outcome: "Future[Evaluation]") -> _Open | None:
        try:
            evaluation = outcome.result()
        except BaselineUnavailableError:
            raise  # it will not come by itself
        except EnvironmentFault as fault:
            return self._try_again(entry, child, fault)
        self._faults = 0
        return self._judge(entry, child, evaluation)

    def _judge(self, entry: _Open, child: Individual, evaluation: Evaluation) -> _Open | None:
        self._remembered(entry)
        try:
            self._judging.judge(child, evaluation)
        except BaselineUnavailableError:
            raise
        except EnvironmentFault as fault:  # of its audit
            return self._try_again(entry, child, fault)
        return entry

    def _try_again(self, entry: _Open, child: Individual, fault: EnvironmentFault) -> _Open | None:
        """Measure once more. Raises EnvironmentBroken for too many faults in a row."""
        self._faults += 1
        logger.warning("fault %d of the environment: %s", self._faults, fault)
        if self._faults >= MAX_FAULTS:
            raise EnvironmentBroken(self._faults, fault) from fault
        return self._measure(entry, child)

    def _remembered(self, entry: _Open) -> _Open:
        if entry.made is not None and not entry.remembered:
            entry.remembered = True
            self._history.add_attempt(entry.conversation.attempt(entry.made, self._generation))
        return entry

    def _left(self) -> float:
        """How many more questions the budget has evaluations for.

        The archive may hold more evaluations than were judged: of questions that are still to be asked again.
        """
        if self._wanted.evaluations is None:
            return float("inf")
        return self._wanted.evaluations - self._tracker.evaluations - len(self._open) - len(self._interrupted)


def register_steady(toolbox: base.Toolbox, under_way: UnderWay) -> None:
    """Give the loop the steps that a steady search has of its own."""
    for step in ("take_up", "has_room", "ask", "hear", "checkpoint", "lay_down"):
        toolbox.register(step, getattr(under_way, step))


def wanted(config: Config, evaluator: EvaluatesAll) -> Wanted:
    """What keeps the answerer and every worker busy."""
    workers = evaluator.workers.size if isinstance(evaluator, PooledEvaluator) else 1
    return Wanted(answers=config.answerer.concurrency, candidates=_AHEAD * workers, evaluations=config.stop.evaluations)
