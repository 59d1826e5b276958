"""The mutation operator: a child is what an answerer makes of one question about one parent, or about two."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from evo.answerers.answerer import Answerer, AnswererError, Reply, Request, Usage
from evo.answerers.budget import BudgetExhausted
from evo.asking import Asked, Asker
from evo.history import Attempt, History, Outcome
from evo.reply import Answer, read_reply
from evo.stop import StopSearch
from evo.unreadable import NoChange, UnreadableReply
from population.archive import Archive
from population.individual import Individual
from population.records import PromptRecord, QuestionRecord, ReplyRecord
from questions.claims import declared
from questions.question import Moment

logger = logging.getLogger(__name__)

ATTEMPTS = 2  # a reply that cannot be read is asked for once more, with the reason

_CLAIMS = {Moment.LIMIT_DECLARED: "limit", Moment.DONE_DECLARED: "done", None: ""}


@dataclass(kw_only=True)
class Conversation:
    """One question and what has come of it so far."""

    asked: Asked
    answer: Answer | None = None
    trouble: UnreadableReply | AnswererError | None = None
    claim: str = field(default="")

    def hear(self, reply: Reply) -> None:
        """Read a reply to the first parent's question."""
        try:
            self.answer, self.trouble = read_reply(reply.text, self.asked.parents[0].source, reply.finish_reason), None
            notes = self.answer.notes
        except UnreadableReply as trouble:
            self.answer, self.trouble = None, trouble
            notes = trouble.notes
        self.claim = _CLAIMS[declared(reply.text, notes.claim)]

    @property
    def to_be_asked_again(self) -> bool:
        """Whether the reply was unreadable; a parent given back is an answer, if an empty one."""
        return isinstance(self.trouble, UnreadableReply) and not isinstance(self.trouble, NoChange)


class Mutation:
    """Asks, listens, reads. Replies that the archive already holds are used, never paid for twice."""

    def __init__(
        self, *, asker: Asker, answerer: Answerer, archive: Archive, history: History, concurrency: int
    ) -> None:
        self._asker = asker
        self._answerer = answerer
        self._archive = archive
        self._history = history
        self._concurrency = concurrency

    def vary(
        self, parents: Sequence[tuple[Individual, ...]], *, first_birth: int, generation: int
    ) -> list[Individual]:
        """The new candidates that the questions about these parents lead to, in the questions' order.

        Every question is remembered with its outcome, also where there is no child. Raises StopSearch where the
        answerer's budget is used up.
        """
        asked = [
            self._asker.ask(group, number=first_birth + place, generation=generation)
            for place, group in enumerate(parents)
        ]
        conversations = [Conversation(asked=each) for each in asked]
        for attempt in range(ATTEMPTS):
            self._converse([each for each in conversations if attempt == 0 or each.to_be_asked_again], attempt)
        children = [self._child_of(conversation) for conversation in conversations]
        return [child for child in children if child is not None]

    def _converse(self, conversations: Sequence[Conversation], attempt: int) -> None:
        """Have one reply to each, from the archive or from the answerer."""
        requests = []
        for conversation in conversations:
            reason = str(conversation.trouble) if conversation.trouble else ""
            request = self._asker.request(conversation.asked, attempt=attempt, reply_error=reason)
            self._record_asked(conversation.asked, request)
            recorded = self._archive.reply(request.number, request.attempt)
            if recorded is None:
                requests.append((conversation, request))
            else:
                conversation.hear(to_reply(recorded))
        for conversation, request, reply in self._answers(requests):
            if isinstance(reply, AnswererError):
                conversation.trouble = reply
            else:
                reply = replace(reply, text=_writable(reply.text))
                self._archive.record_reply(_to_record(request, reply))
                conversation.hear(reply)

    def _answers(
        self, requests: Sequence[tuple[Conversation, Request]]
    ) -> Iterator[tuple[Conversation, Request, Reply | AnswererError]]:
        """Replies as they come in, so that each is kept at once."""
        if not requests:
            return
        with ThreadPoolExecutor(max_workers=self._concurrency) as pool:
            waiting: dict[Future[Reply], tuple[Conversation, Request]] = {
                pool.submit(self._answerer.answer, request): (conversation, request)
                for conversation, request in requests
            }
            try:
                for future in as_completed(waiting):
                    conversation, request = waiting[future]
                    yield conversation, request, _reply_or_error(future)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _child_of(self, conversation: Conversation) -> Individual | None:
        """The new candidate of a conversation, or None; either way the attempt is remembered."""
        asked, answer = conversation.asked, conversation.answer
        if answer is None:
            self._remember(conversation, _outcome_of(conversation.trouble), str(conversation.trouble), None)
            return None
        child = Individual.from_source(
            answer.source,
            birth=asked.number,
            generation=asked.generation,
            operator=asked.operator,
            parent_ids=tuple(parent.id for parent in asked.parents),
            question_id=asked.question.id,
        )
        if self._history.knows(child.id):
            self._remember(conversation, Outcome.DUPLICATE, f"the text of {child.id}, judged before", child.id)
            return None
        if self._archive.holds(child.id):  # made by this generation before it was interrupted
            child = self._archive.individual(child.id)
        else:
            self._archive.record_individual(child)
        self._history.add_individual(child)
        self._remember(conversation, Outcome.CHILD, answer.notes.change, child.id)
        return child

    def _remember(self, conversation: Conversation, outcome: Outcome, detail: str, child_id: str | None) -> None:
        asked = conversation.asked
        self._history.add_attempt(
            Attempt(
                number=asked.number,
                generation=asked.generation,
                operator=asked.operator,
                parent_ids=tuple(parent.id for parent in asked.parents),
                question_id=asked.question.id,
                layer=str(asked.question.layer),
                moment=str(asked.trigger.moment),
                style=str(asked.style),
                hint=asked.hint,
                outcome=outcome,
                detail=detail,
                claim=conversation.claim,
                child_id=child_id,
            )
        )

    def _record_asked(self, asked: Asked, request: Request) -> None:
        with self._archive.transaction():
            self._archive.record_question(
                QuestionRecord(
                    number=asked.number,
                    question_id=asked.question.id,
                    moment=str(asked.trigger.moment),
                    layer=str(asked.question.layer),
                    style=str(asked.style),
                    text=asked.hint,
                    origin=asked.question.origin,
                )
            )
            self._archive.record_prompt(
                PromptRecord(number=request.number, attempt=request.attempt, text=request.prompt)
            )


def _reply_or_error(future: Future[Reply]) -> Reply | AnswererError:
    try:
        return future.result()
    except BudgetExhausted as error:
        raise StopSearch(str(error)) from error
    except AnswererError as error:
        logger.warning("no reply: %s", error)
        if not error.retryable:  # a wrong key, a quota that is used up: the next question would meet the same
            raise StopSearch(f"the answerer gave up: {error}") from error
        return error


def _writable(text: str) -> str:
    """The text without lone surrogates: JSON may bring them, and no file can hold them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _outcome_of(trouble: UnreadableReply | AnswererError | None) -> Outcome:
    if isinstance(trouble, NoChange):
        return Outcome.NO_CHANGE
    return Outcome.UNREADABLE if isinstance(trouble, UnreadableReply) else Outcome.UNANSWERED


def _to_record(request: Request, reply: Reply) -> ReplyRecord:
    return ReplyRecord(
        number=request.number,
        attempt=request.attempt,
        text=reply.text,
        model=reply.model,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.usage.prompt_tokens,
        completion_tokens=reply.usage.completion_tokens,
        cost_usd=reply.usage.cost_usd,
        estimated=reply.usage.estimated,
    )


def to_reply(record: ReplyRecord) -> Reply:
    """A reply as the archive holds it."""
    usage = Usage(
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cost_usd=record.cost_usd,
        estimated=record.estimated,
    )
    return Reply(text=record.text, model=record.model, finish_reason=record.finish_reason, usage=usage)
