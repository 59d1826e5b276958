"""Which question to ask: Thompson sampling over what each has brought, among those that fit the moment."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from questions.bank import Bank
from questions.credit import Outcome, QuestionStatistics, Tally, statistics_of
from questions.entry import read_entry, write_entry
from questions.phrasing import has_phrasing
from questions.question import Layer, Moment, Question, Style
from questions.sampler_state import SamplerState
from questions.slots import slots_in

MOVING_MOMENTS = (Moment.STALL, Moment.LIMIT_DECLARED, Moment.DONE_DECLARED)  # they call for another layer
DEFAULT_FLOOR = 0.1


class SamplingMode(StrEnum):
    """How one question is chosen among those that fit."""

    THOMPSON = "thompson"
    UNIFORM = "uniform"  # for comparison: nothing is learnt


class NoQuestionError(Exception):
    """Nothing in the bank fits the kernel at all, whatever the moment."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a sampler had counted at a moment, and the questions that waited then."""

    tallies: Mapping[str, Tally]
    queue: Sequence[Question]


class QuestionSampler:
    """Draws questions and learns from their outcomes. The same state draws the same question.

    In THOMPSON mode each fitting question gets a draw from Beta(1 + R, 1 + n - R), R the sum of its n rewards in
    [0, 1], and the greatest draw is asked (Agrawal and Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit
    Problem", COLT 2012, section 1.2; they toss a coin of bias r to add 0 or 1, here r itself is added, which has the
    same mean and needs no coin). With probability `floor` the choice is uniform instead, so that a question with a poor
    start is still asked at least once in `fitting / floor` draws in the mean.

    `styles` are the phrasings that a question must have to be drawn: the run's own, or all that are being compared.
    `rng` must be the sampler's own: its state is saved and restored with the rest.
    """

    def __init__(
        self,
        bank: Bank,
        rng: random.Random,
        *,
        styles: Collection[Style] = (Style.QUESTION,),
        mode: SamplingMode = SamplingMode.THOMPSON,
        floor: float = DEFAULT_FLOOR,
    ) -> None:
        if not 0 <= floor <= 1:
            raise ValueError(f"floor {floor}; expected a probability")
        self._bank = bank
        self._rng = rng
        self._styles = tuple(styles)
        self._mode = mode
        self._floor = floor
        self._tallies: dict[str, Tally] = {}
        self._queue: list[Question] = []

    def sample(
        self,
        moment: Moment,
        targets: Collection[str],
        *,
        avoid_layers: Collection[Layer] = (),
        fillable_slots: Collection[str] = (),
        exclude_ids: Collection[str] = (),
    ) -> Question:
        """The next question about a kernel of those targets, and counts it as asked.

        A person's question comes first, in the order pushed, once it fits target and slots. Otherwise the draw is among
        the first of these that is not empty; target, slots and styles hold in all of them:

        1. the moment, a layer outside `avoid_layers` (which counts at MOVING_MOMENTS only), not in `exclude_ids`
        2. the moment ANY instead    3. the moment, any layer    4. the moment ANY, any layer
        5. to 8. the same with `exclude_ids` allowed: asked twice is better than not at all

        Raises NoQuestionError where all are empty.
        """
        question = self._next_pushed(targets, fillable_slots)
        if question is None:
            avoid = frozenset(avoid_layers) if moment in MOVING_MOMENTS else frozenset()
            fitting = [q for q in self._bank if _fits(q, targets, fillable_slots, self._styles)]
            question = self._choose(_first_step(fitting, moment, avoid, exclude_ids))
        self._tallies[question.id] = self._tally(question.id).plus_asked()
        return question

    def fitting(
        self, moment: Moment, targets: Collection[str], fillable_slots: Collection[str], styles: Collection[Style]
    ) -> list[Question]:
        """The bank's questions of a moment that fit a kernel and can be put in all these styles, in its order."""
        return [q for q in self._bank if moment in q.moments and _fits(q, targets, fillable_slots, styles)]

    def push(self, question: Question) -> None:
        """Has a person's question asked before any other; one that waits already is not added twice.

        Raises ValueError for another question under an id that is taken, BankError for one that no bank could hold.
        """
        question = read_entry(write_entry(question), "pushed question")  # it must come back from a checkpoint
        for known in (*self._bank, *self._queue):
            if known.id == question.id and known.text != question.text:
                raise ValueError(f"question {question.id}: the id belongs to {known.text!r}; expected a new one")
        if all(waiting.id != question.id for waiting in self._queue):
            self._queue.append(question)

    def mark(self) -> Mark:
        """The moment before a draw in whose place another question may have to be counted."""
        return Mark(tallies=dict(self._tallies), queue=tuple(self._queue))

    def recall(self, question: Question, *, since: Mark) -> None:
        """Counts a question as asked in the place of what was drawn since; the generator stays after that draw."""
        self._tallies = dict(since.tallies)
        self._queue = [waiting for waiting in since.queue if waiting.id != question.id]
        self._tallies[question.id] = self._tally(question.id).plus_asked()

    def credit(self, question_id: str, outcome: Outcome) -> None:
        """Counts what became of a question. Raises KeyError for one that was never asked."""
        if question_id not in self._tallies:
            raise KeyError(f"question {question_id!r} was never asked; expected one of {', '.join(self._tallies)}")
        self._tallies[question_id] = self._tally(question_id).plus(outcome)

    def statistics(self) -> tuple[QuestionStatistics, ...]:
        """One record for every question of the bank, in its order, then for every other that was asked."""
        ids = dict.fromkeys([question.id for question in self._bank] + sorted(self._tallies))
        return tuple(statistics_of(question_id, self._tally(question_id)) for question_id in ids)

    def state(self) -> dict[str, Any]:
        """All that has been learnt, what waits and the generator's state, in strict JSON types."""
        return SamplerState(rng=self._rng.getstate(), tallies=self._tallies, queue=tuple(self._queue)).to_json()

    def restore(self, state: Mapping[str, Any], bank: Bank) -> None:
        """Goes on from what `state` gave, with a bank that may have gained or lost questions since.

        Questions are matched by id. New ones start without credit; the credit of lost ones is kept, for they may
        return. Raises SamplerStateError, and changes nothing, for anything that `state` did not write.
        """
        read = SamplerState.from_json(state)
        self._rng.setstate(read.rng)
        self._bank, self._tallies, self._queue = bank, dict(read.tallies), list(read.queue)

    def _tally(self, question_id: str) -> Tally:
        return self._tallies.get(question_id, Tally())

    def _next_pushed(self, targets: Collection[str], fillable_slots: Collection[str]) -> Question | None:
        for question in self._queue:
            if _fits_kernel(question, targets, fillable_slots):
                self._queue.remove(question)
                return question
        return None

    def _choose(self, fitting: Sequence[Question]) -> Question:
        if not fitting:
            raise NoQuestionError(
                f"none of the bank's {len(self._bank)} questions fits the kernel's targets, the slots that can be "
                f"filled and the styles {', '.join(self._styles)}; add some (questions.files) for the moment `any`"
            )
        if self._mode is SamplingMode.UNIFORM or self._rng.random() < self._floor:
            return self._rng.choice(fitting)
        draws = [self._draw(question) for question in fitting]
        return fitting[draws.index(max(draws))]

    def _draw(self, question: Question) -> float:
        tally = self._tally(question.id)
        return self._rng.betavariate(1 + tally.reward_sum, 1 + tally.credited - tally.reward_sum)


def _fits(
    question: Question, targets: Collection[str], fillable_slots: Collection[str], styles: Collection[Style]
) -> bool:  # fmt: skip
    return _fits_kernel(question, targets, fillable_slots) and all(has_phrasing(question, style) for style in styles)


def _fits_kernel(question: Question, targets: Collection[str], fillable_slots: Collection[str]) -> bool:
    # Slots of the text alone: the other phrasings have no more, so that a draw does not depend on the style.
    return not set(targets).isdisjoint(question.targets) and slots_in(question.text) <= set(fillable_slots)


def _first_step(
    fitting: Sequence[Question], moment: Moment, avoid: frozenset[Layer], exclude_ids: Collection[str]
) -> list[Question]:
    steps: list[Callable[[Question], bool]] = [
        lambda q: moment in q.moments and q.layer not in avoid,
        lambda q: Moment.ANY in q.moments and q.layer not in avoid,
        lambda q: moment in q.moments,
        lambda q: Moment.ANY in q.moments,
    ]
    for questions in ([q for q in fitting if q.id not in exclude_ids], fitting):
        for step in steps:
            if chosen := [q for q in questions if step(q)]:
                return chosen
    return []
