"""Asking: the moment, a question for it, its phrasing, and the prompt around it."""

from dataclasses import dataclass, replace

from evo.answerers.answerer import Request
from evo.evidence import attempt_parts, compiler_message, parent_part
from evo.history import History
from evo.moments import layers_tried, line_attempts, lineage_history, slot_values
from evo.prompt import PromptParts, PromptTemplate, ToolsPart, build_prompt
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest
from population.individual import Individual
from questions.phrasing import phrase
from questions.question import Question, Style
from questions.sampler import QuestionSampler
from questions.triggers import Thresholds, Trigger, read_moment


@dataclass(frozen=True, kw_only=True)
class Phrasing:
    """How a question's content becomes a prompt: what a comparison of styles varies, and what it holds fixed."""

    style: Style
    template: PromptTemplate
    budget_tokens: int
    device: str  # as the prompt names it
    baseline: str
    tools: ToolsPart | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question on its way to an answerer."""

    number: int
    generation: int
    operator: str  # mutate | crossover
    parents: tuple[Individual, ...]
    question: Question
    trigger: Trigger
    style: Style
    hint: str  # the question in its style
    parts: PromptParts


class Asker:
    """Chooses what to ask about a parent, or about two. Draws from the sampler's generator alone."""

    def __init__(
        self, *, sampler: QuestionSampler, phrasing: Phrasing, history: History, thresholds: Thresholds
    ) -> None:
        self._sampler = sampler
        self._phrasing = phrasing
        self._history = history
        self._thresholds = thresholds

    def ask(self, parents: tuple[Individual, ...], *, number: int, generation: int) -> Asked:
        """The question that fits the moment of the first parent's line. Raises NoQuestionError."""
        first = parents[0]
        attempts = line_attempts(self._history, first)
        trigger = read_moment(lineage_history(self._history, parents), self._thresholds)
        slots = slot_values(self._history, first)
        question = self._sampler.sample(
            trigger.moment,
            targets_of(first),
            avoid_layers=layers_tried(attempts),
            fillable_slots=slots,
            exclude_ids=[attempt.question_id for attempt in attempts],
        )
        hint = phrase(question, self._phrasing.style, slots)
        return self.again(
            parents, number=number, generation=generation, question=question, trigger=trigger, hint=hint
        )

    def again(
        self, parents: tuple[Individual, ...], *, number: int, generation: int, question: Question, trigger: Trigger,
        hint: str,
    ) -> Asked:  # fmt: skip
        """A question that was chosen before, in its words, with the evidence as it is now."""
        first = parents[0]
        return Asked(
            number=number,
            generation=generation,
            operator="mutate" if len(parents) == 1 else "crossover",
            parents=parents,
            question=question,
            trigger=trigger,
            style=self._phrasing.style,
            hint=hint,
            parts=PromptParts(
                style=self._phrasing.style,
                question=hint,
                parents=tuple(parent_part(self._history, parent) for parent in parents),
                device=self._phrasing.device,
                baseline=self._phrasing.baseline,
                attempts=attempt_parts(self._history, first),
                compiler_message=compiler_message(self._history, first),
                tools=self._phrasing.tools,
            ),
        )

    def request(self, asked: Asked, *, attempt: int, reply_error: str = "") -> Request:
        """What goes to the answerer; a re-ask says why the last reply could not be read. Raises PromptError."""
        parts = replace(asked.parts, reply_error=reply_error)
        return Request(
            number=asked.number,
            attempt=attempt,
            prompt=build_prompt(parts, self._phrasing.template, self._phrasing.budget_tokens),
            layer=str(asked.question.layer),
            parent_sources=tuple(parent.source for parent in asked.parents),
        )


def targets_of(parent: Individual) -> tuple[str, ...]:
    """What the parent's manifest says that it runs on."""
    try:
        return read_manifest(parent.source).targets
    except CandidateFault as fault:  # only kernels that passed become parents
        raise ValueError(f"parent {parent.id}: {fault.reason}") from fault
