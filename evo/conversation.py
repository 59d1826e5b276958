"""One question on its way from a parent to a child: what was asked, what was heard, and what came of it."""

from dataclasses import dataclass, field

from evo.answerers.answerer import AnswererError, Reply
from evo.asking import Asked
from evo.history import Attempt, Outcome
from evo.reply import Answer, read_reply
from evo.unreadable import NoChange, UnreadableReply
from population.individual import Individual
from questions.claims import declared
from questions.question import Moment

_CLAIMS = {Moment.LIMIT_DECLARED: "limit", Moment.DONE_DECLARED: "done", None: ""}


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a conversation led to."""

    outcome: Outcome
    detail: str  # why there is no child; else the reply's own word on its change
    child_id: str | None = None
    child: Individual | None = None  # a new one


@dataclass(kw_only=True)
class Conversation:
    """One question and what has come of it so far."""

    asked: Asked
    answer: Answer | None = None
    trouble: UnreadableReply | AnswererError | None = None
    unread: UnreadableReply | None = None  # why the latest reply that came could not be read
    claim: str = field(default="")

    def hear(self, reply: Reply) -> None:
        """Read a reply to the first parent's question."""
        try:
            self.answer, self.trouble = read_reply(reply.text, self.asked.parents[0].source, reply.finish_reason), None
            notes = self.answer.notes
        except UnreadableReply as trouble:
            self.answer, self.trouble, self.unread = None, trouble, trouble
            notes = trouble.notes
        self.claim = _CLAIMS[declared(reply.text, notes.claim)]

    @property
    def to_be_asked_again(self) -> bool:
        """Whether the reply was unreadable; a parent given back is an answer, if an empty one."""
        return isinstance(self.trouble, UnreadableReply) and not isinstance(self.trouble, NoChange)

    @property
    def childless(self) -> Made:
        """What it led to where there is no answer."""
        detail = str(self.trouble)
        if self.unread is not None and self.unread is not self.trouble:
            detail = f"the reply that came could not be read: {self.unread.reason}; asked once more: {detail}"
        return Made(outcome=_outcome_of(self.trouble), detail=detail)

    def child(self, source: str) -> Individual:
        """The individual that a source is as the child of this conversation's parents."""
        asked = self.asked
        return Individual.from_source(
            source,
            birth=asked.number,
            generation=asked.generation,
            operator=asked.operator,
            parent_ids=tuple(parent.id for parent in asked.parents),
            question_id=asked.question.id,
        )

    def attempt(self, made: Made, generation: int) -> Attempt:
        """The record of it, in the generation that it counts for."""
        asked = self.asked
        return Attempt(
            number=asked.number,
            generation=generation,
            operator=asked.operator,
            parent_ids=tuple(parent.id for parent in asked.parents),
            question_id=asked.question.id,
            layer=str(asked.question.layer),
            moment=str(asked.trigger.moment),
            style=str(asked.style),
            hint=asked.hint,
            outcome=made.outcome,
            detail=made.detail,
            claim=self.claim,
            child_id=made.child_id,
        )


def _outcome_of(trouble: UnreadableReply | AnswererError | None) -> Outcome:
    if isinstance(trouble, NoChange):
        return Outcome.NO_CHANGE
    return Outcome.UNREADABLE if isinstance(trouble, UnreadableReply) else Outcome.UNANSWERED
