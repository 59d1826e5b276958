"""An experiment in place of a search: the same questions about the same parents, each put once in every style.

Everything stands in one generation of one run, so that the prompts of a pair differ in the phrasing alone: the parent
was measured once for all of them, and no reply was read before the last of them was put.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evo.answerers.answerer import Request
from evo.asking import Asked, Asker, targets_of
from evo.config import Config
from evo.history import History
from evo.moments import slot_values
from evo.stop import StopSearch
from population.individual import Individual
from questions.bank import Bank
from questions.phrasing import has_phrasing
from questions.question import Moment, Question, Style
from questions.sampler import NoQuestionError, QuestionSampler


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One question about one parent in one style."""

    parent: Individual
    question: Question
    style: Style


def single_shot(
    config: Config, sampler: QuestionSampler, history: History, build_asker: Callable[[Style], Asker],
    draw: Callable[[], random.Random],
) -> "SingleShot | None":  # fmt: skip
    """The configured experiment; None for a search."""
    questions = config.single_shot.questions
    if questions is None:
        return None
    askers = {style: build_asker(style) for style in map(Style, config.asked_styles)}
    return SingleShot(askers=askers, sampler=sampler, history=history, questions=questions, draw=draw)


def require_enough_questions(config: Config, bank: Bank) -> None:
    """Raise NoQuestionError where the bank is too small whatever the seeds are, before any is measured."""
    wanted = config.single_shot.questions
    if wanted is None:
        return
    styles = [Style(style) for style in config.asked_styles]
    able = sum(Moment.ANY in each.moments and all(has_phrasing(each, style) for style in styles) for each in bank)
    if able < wanted:
        raise NoQuestionError(
            f"single_shot.questions={wanted}: {able} questions of the bank can be put in the styles "
            f"{', '.join(styles)}; ask for fewer, or add some (questions.files)"
        )


def passed_seeds(history: History) -> list[Individual]:
    """The parents of a single shot."""
    return [each for each in history.seeds() if history.geomean(each.id) > 0.0]


class SingleShot:
    """Chooses the shots, in the place of the selection of parents, and asks them, in the place of an Asker.

    `draw` gives the same generator each time, so that a generation that is made again is the same; the style of a run
    has no part in it. The seeds that did not pass are left out.
    """

    def __init__(
        self, *, askers: Mapping[Style, Asker], sampler: QuestionSampler, history: History, questions: int,
        draw: Callable[[], random.Random],
    ) -> None:  # fmt: skip
        self._askers = askers
        self._sampler = sampler
        self._history = history
        self._questions = questions
        self._draw = draw
        self._shots: list[Shot] = []

    def select_parents(
        self, _population: Sequence[Individual], count: int | None = None  # noqa: ARG002  # all shots are one generation
    ) -> list[tuple[Individual, ...]]:
        """The parent of each shot, in random order.

        Raises NoQuestionError where too few questions fit a seed, StopSearch where the shots were put before.
        """
        if self._history.attempts_of(1):
            raise StopSearch("every question of the single shot was put once")
        rng = self._draw()
        seeds = passed_seeds(self._history)
        pairs = [(seed, question) for seed in seeds for question in self._questions_about(seed, rng)]
        self._shots = [
            Shot(parent=seed, question=question, style=style) for seed, question in pairs for style in self._askers
        ]
        rng.shuffle(self._shots)
        return [(shot.parent,) for shot in self._shots]

    def ask(self, parents: tuple[Individual, ...], *, number: int, generation: int) -> Asked:
        """The shot of that number; they count from 0."""
        shot = self._shots[number]
        self._sampler.push(shot.question)  # what is pushed is drawn next
        return self._askers[shot.style].ask(parents, number=number, generation=generation)

    def request(self, asked: Asked, *, attempt: int, reply_error: str = "") -> Request:
        """As an Asker's."""
        return self._askers[asked.style].request(asked, attempt=attempt, reply_error=reply_error)

    def _questions_about(self, seed: Individual, rng: random.Random) -> list[Question]:
        slots = slot_values(self._history, seed)
        fitting = self._sampler.fitting(Moment.ANY, targets_of(seed), slots, tuple(self._askers))
        if len(fitting) < self._questions:
            raise NoQuestionError(
                f"single_shot.questions={self._questions}: {len(fitting)} questions of the bank fit {seed.id} and can "
                f"be put in the styles {', '.join(self._askers)}; ask for fewer, or add some (questions.files)"
            )
        return rng.sample(fitting, self._questions)
