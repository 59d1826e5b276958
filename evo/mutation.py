"""The mutation operator: a child is what an answerer makes of one question about one parent, or about two."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from evo.answerers.answerer import Answerer, AnswererError, Reply, Request
from evo.answerers.budget import BudgetExhausted
from evo.answerers.mailbox import ReplyAwaited
from evo.asking import Asked
from evo.conversation import Conversation, Made
from evo.history import History, Outcome
from evo.reply_records import keep_reply, keep_unanswered, to_reply
from evo.stop import GivenUp, StopSearch
from fitness.faults import EnvironmentFault
from population.archive import Archive
from population.individual import Individual
from population.records import PromptRecord, QuestionRecord

logger = logging.getLogger(__name__)

ATTEMPTS = 2  # a reply that cannot be read is asked for once more, with the reason


class RepliesAwaited(StopSearch):
    """Some replies will come later, and the generation is made again then.

    `sources` are the children that the replies so far lead to: they may be measured meanwhile. `unread` says by number
    why the reply that came could not be read, so that it is asked for once more; `lost`, why the second could not.
    """

    def __init__(
        self, awaited: Sequence[ReplyAwaited], sources: Sequence[str], *,
        unread: Mapping[int, str] = MappingProxyType({}), lost: Mapping[int, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        first = awaited[0].path
        more = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
        super().__init__(f"waiting for replies to {first.parent.name}/{first.name}{more}")
        self.requests = tuple(each.request for each in awaited)
        self.sources = tuple(sources)
        self.unread = unread
        self.lost = lost
        self._awaited = tuple(awaited)

    def beside(self, sources: Sequence[str]) -> "RepliesAwaited":
        """The same, with more sources that may be measured, before the others."""
        return RepliesAwaited(self._awaited, [*sources, *self.sources], unread=self.unread, lost=self.lost)


class Asks(Protocol):
    """Who chooses questions: an Asker in a search."""

    def ask(self, parents: tuple[Individual, ...], *, number: int, generation: int) -> Asked:
        """The question about these parents. Raises NoQuestionError."""

    def request(self, asked: Asked, *, attempt: int, reply_error: str = "") -> Request:
        """What goes to the answerer. Raises PromptError."""


class Mutation:
    """Asks, listens, reads. Replies that the archive already holds are used, never paid for twice.

    `take_in(number)` hears of each question's number before it is chosen, for questions that people add meanwhile.
    """

    def __init__(
        self, *, asker: Asks, answerer: Answerer, archive: Archive, history: History, concurrency: int,
        take_in: Callable[[int], None] = lambda _number: None,
    ) -> None:  # fmt: skip
        self._asker = asker
        self._answerer = answerer
        self._archive = archive
        self._history = history
        self._concurrency = concurrency
        self._take_in = take_in

    def vary(
        self, parents: Sequence[tuple[Individual, ...]], *, first_birth: int, generation: int
    ) -> list[Individual]:
        """The new candidates that the questions about these parents lead to, in the questions' order.

        Every question is remembered with its outcome, also where there is no child. Raises StopSearch where the
        answerer's budget is used up, RepliesAwaited where replies will come later, EnvironmentFault where a tool that
        the answerer's model calls cannot work.
        """
        asked = [
            self.ask(group, number=first_birth + place, generation=generation) for place, group in enumerate(parents)
        ]
        conversations = [Conversation(asked=each) for each in self._numbered(asked)]
        for attempt in range(ATTEMPTS):
            self._converse([each for each in conversations if attempt == 0 or each.to_be_asked_again], attempt)
        if awaited := [each.trouble for each in conversations if isinstance(each.trouble, ReplyAwaited)]:
            unread = {each.asked.number: each.unread.reason for each in conversations if each.unread}
            lost = {each.asked.number: str(each.trouble) for each in conversations if each.to_be_asked_again}
            sources = [each.answer.source for each in conversations if each.answer]
            raise RepliesAwaited(awaited, sources, unread=unread, lost=lost)
        children = [self._child_of(conversation) for conversation in conversations]
        return [child for child in children if child is not None]

    def ask(self, group: tuple[Individual, ...], *, number: int, generation: int) -> Asked:
        """The question to be put about one parent or two."""
        self._take_in(number)
        return self._asker.ask(group, number=number, generation=generation)

    def _numbered(self, asked: Sequence[Asked]) -> list[Asked]:
        """The questions under their numbers, or under new ones where the archive has asked otherwise under these.

        So it is where a generation is made again after the bank changed, or after a reply that was missing came: the
        replies that were given answer other questions, and stay with those.
        """
        if not any(map(self._was_asked_otherwise, asked)):
            return list(asked)
        first = self._archive.next_question_number()
        logger.warning("generation %d is asked anew, from question %d on", asked[0].generation, first)
        return [replace(each, number=first + place) for place, each in enumerate(asked)]

    def _was_asked_otherwise(self, asked: Asked) -> bool:
        question = self._archive.question(asked.number)
        prompt = self._archive.prompt(asked.number, 0)
        if question is None or prompt is None:
            return False
        same_parents = all(parent.source.strip() in prompt.text for parent in asked.parents)
        return (question.question_id, question.text) != (asked.question.id, asked.hint) or not same_parents

    def _converse(self, conversations: Sequence[Conversation], attempt: int) -> None:
        """Have one reply to each, from the archive or from the answerer."""
        outstanding = [(each, self.outstanding(each, attempt)) for each in conversations]
        self._put([(each, request) for each, request in outstanding if request is not None])

    def outstanding(self, conversation: Conversation, attempt: int) -> Request | None:
        """The request that is to be put; None where the archive holds the reply to it, which now is heard."""
        reason = str(conversation.trouble) if conversation.trouble else ""
        request = self._asker.request(conversation.asked, attempt=attempt, reply_error=reason)
        request = self._recorded(conversation.asked, request)
        recorded = self._archive.reply(request.number, request.attempt)
        if recorded is None:
            return request
        conversation.hear(to_reply(recorded))
        return None

    def _put(self, requests: Sequence[tuple[Conversation, Request]]) -> None:
        """Put requests to the answerer; what comes of each is kept as it comes in.

        Where the search ends meanwhile, those under way are waited for and their replies kept: they are paid for.
        """
        with ThreadPoolExecutor(max_workers=self._concurrency) as pool:
            waiting = {pool.submit(self._answerer.answer, request): (each, request) for each, request in requests}
            kept: set[Future[Reply]] = set()
            try:
                for future in as_completed(waiting):
                    conversation, request = waiting[future]
                    reply = self.keep(request, future)
                    kept.add(future)
                    listen(conversation, reply)
            except (StopSearch, EnvironmentFault):
                pool.shutdown(cancel_futures=True)
                for future, (_, request) in waiting.items():
                    if future in kept or future.cancelled():
                        continue
                    if isinstance(future.exception(), AnswererError | None):
                        self.keep(request, future)
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def keep(self, request: Request, future: Future[Reply]) -> Reply | AnswererError:
        """What came of a request, as the archive now holds it. Raises EnvironmentFault from a tool of the model's."""
        try:
            return keep_reply(self._archive, request, future.result())
        except AnswererError as error:
            keep_unanswered(self._archive, request, error)
            return error

    def _child_of(self, conversation: Conversation) -> Individual | None:
        """The new candidate of a conversation, or None; either way the attempt is remembered."""
        made = self.made(conversation)
        self._history.add_attempt(conversation.attempt(made, conversation.asked.generation))
        return made.child

    def made(self, conversation: Conversation, *, of_others: bool = True) -> Made:
        """What a conversation led to; a new candidate is recorded.

        A text that another question made, of a generation that was interrupted, is a child only with `of_others`;
        else that question will be asked again, and it is its child.
        """
        answer = conversation.answer
        if answer is None:
            return conversation.childless
        child = conversation.child(answer.source)
        earlier = self._archive.individual(child.id) if self._archive.holds(child.id) else None
        of_another = earlier is not None and earlier.birth != child.birth
        if self._history.knows(child.id) or (of_another and not of_others):
            detail = f"the text of {child.id}, judged before"
            return Made(outcome=Outcome.DUPLICATE, detail=detail, child_id=child.id)
        if earlier is None:
            self._archive.record_individual(child)
        child = earlier or child  # made by this generation before it was interrupted
        self._history.add_individual(child)
        return Made(outcome=Outcome.CHILD, detail=answer.notes.change, child_id=child.id, child=child)

    def _recorded(self, asked: Asked, request: Request) -> Request:
        """The request as the archive holds it: what was once asked stays as it was, whatever the template says now."""
        prompt = self._archive.prompt(request.number, request.attempt)
        if prompt is not None:
            return replace(request, prompt=prompt.text)
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
        return request


def listen(conversation: Conversation, reply: Reply | AnswererError) -> None:
    """Hear a reply, or that there is none. Raises StopSearch where the search cannot go on without it."""
    if isinstance(reply, AnswererError):
        conversation.trouble = _bearable(reply)
    else:
        conversation.hear(reply)


def _bearable(error: AnswererError) -> AnswererError:
    """The error, where the search can go on without this reply. Raises StopSearch where it cannot."""
    if isinstance(error, BudgetExhausted):
        raise StopSearch(str(error)) from error
    if isinstance(error, ReplyAwaited):
        return error
    logger.warning("no reply: %s", error)
    if not error.retryable:  # a wrong key, a quota that is used up: the next question would meet the same
        raise GivenUp(f"the answerer gave up: {error}") from error
    return error
