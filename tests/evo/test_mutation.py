"""The mutation operator: what comes of each kind of reply, and that no reply is paid for twice."""

import logging
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from small_records import known, passed
from small_search import PHRASING, SOURCE, small_bank

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.answerers.budget import BudgetExhausted
from evo.asking import Asker
from evo.history import Attempt, History, Outcome
from evo.mutation import Mutation
from evo.stop import Interrupted, StopSearch
from fitness.manifest import with_knobs
from population.archive import Archive, create_archive
from population.individual import Individual
from population.records import ReplyRecord
from population.run_folder import create_run_folder
from questions.sampler import QuestionSampler
from questions.triggers import Thresholds

Script = Mapping[tuple[int, int], Reply | Exception]


def whole_file(source: str, note: str = "other knobs") -> Reply:
    return Reply(text=f"Change: {note}\n\n```cuda\n{source}```\n", model="scripted")


def turned(**knobs: int) -> Reply:
    return whole_file(with_knobs(SOURCE, knobs))


class Scripted:
    """Answers by what a test says for (number, attempt); keeps what it was asked."""

    description = "scripted"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Request] = []

    def answer(self, request: Request) -> Reply:
        self.asked.append(request)
        reply = self.script[request.number, request.attempt]
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def numbers(self) -> list[tuple[int, int]]:
        return [(request.number, request.attempt) for request in self.asked]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def seed(archive: Archive, history: History) -> Individual:
    made = Individual.from_source(SOURCE, birth=-1, generation=0, operator="seed")
    archive.record_individual(made)
    return known(history, made, passed(made.source, {"x": 0.5, "y": 0.8}))


def mutation(archive: Any, history: History, answerer: Scripted, concurrency: int = 1) -> Mutation:
    sampler = QuestionSampler(small_bank(), random.Random(1))
    asker = Asker(sampler=sampler, phrasing=PHRASING, history=history, thresholds=Thresholds())
    return Mutation(asker=asker, answerer=answerer, archive=archive, history=history, concurrency=concurrency)


def attempts(history: History) -> list[Attempt]:
    return history.attempts_of(1)


def test_a_reply_is_recorded_and_read_into_a_child(archive: Archive, history: History, seed: Individual) -> None:
    usage = Usage(prompt_tokens=900, completion_tokens=80, cost_usd=0.25, estimated=True)
    text = whole_file(with_knobs(SOURCE, {"STAGES": 2}), "two stages").text
    reply = Reply(text=text, model="m-1", finish_reason="stop", usage=usage)
    [child] = mutation(archive, history, Scripted({(5, 0): reply})).vary([(seed,)], first_birth=5, generation=1)
    assert child.source == with_knobs(SOURCE, {"STAGES": 2})
    assert (child.birth, child.generation, child.operator, child.parent_ids) == (5, 1, "mutate", (seed.id,))
    recorded = archive.reply(5, 0)
    assert recorded is not None
    assert (recorded.text, recorded.model, recorded.cost_usd, recorded.estimated) == (text, "m-1", 0.25, True)
    question, prompt = archive.question(5), archive.prompt(5, 0)
    assert question is not None
    assert prompt is not None
    assert question.text in prompt.text
    assert child.question_id == question.question_id
    assert archive.individual(child.id) == child
    [made] = attempts(history)
    assert (made.outcome, made.child_id, made.detail) == (Outcome.CHILD, child.id, "two stages")
    assert (made.question_id, made.layer, made.hint) == (question.question_id, question.layer, question.text)


def test_an_unreadable_reply_is_asked_for_once_more_with_the_reason(
    archive: Archive, history: History, seed: Individual
) -> None:
    answerer = Scripted({(0, 0): Reply(text="I would widen the tiles.", model="m"), (0, 1): turned(WIDTH=2)})
    [child] = mutation(archive, history, answerer).vary([(seed,)], first_birth=0, generation=1)
    assert answerer.numbers == [(0, 0), (0, 1)]
    reason = "the reply holds neither edit blocks nor a whole kernel in a fence"
    assert reason not in answerer.asked[0].prompt
    assert reason in answerer.asked[1].prompt
    assert attempts(history)[0].child_id == child.id
    assert archive.prompt(0, 1) is not None
    assert archive.reply(0, 1) is not None


def test_two_unreadable_replies_are_an_outcome_of_their_own(
    archive: Archive, history: History, seed: Individual
) -> None:
    cut = Reply(text="```cuda\n/*evo", model="m", finish_reason="length")
    answerer = Scripted({(0, 0): cut, (0, 1): cut})
    assert mutation(archive, history, answerer).vary([(seed,)], first_birth=0, generation=1) == []
    [made] = attempts(history)
    assert (made.outcome, made.child_id) == (Outcome.UNREADABLE, None)
    assert made.detail == "the reply reached its length limit before its end"
    assert answerer.numbers == [(0, 0), (0, 1)]


def test_a_model_that_returns_the_same_kernel_every_time_makes_one_child(
    archive: Archive, history: History, seed: Individual
) -> None:
    same = turned(UNROLL=4)
    answerer = Scripted({(number, 0): same for number in range(3)})
    [child] = mutation(archive, history, answerer).vary([(seed,)] * 3, first_birth=0, generation=1)
    assert [made.outcome for made in attempts(history)] == [Outcome.CHILD, Outcome.DUPLICATE, Outcome.DUPLICATE]
    assert {made.child_id for made in attempts(history)} == {child.id}
    assert len(list(archive.individuals())) == 2


def test_the_parent_given_back_is_no_change_and_not_asked_again(
    archive: Archive, history: History, seed: Individual
) -> None:
    answerer = Scripted({(0, 0): Reply(text=f"{whole_file(SOURCE).text}\nClaim: limit\n", model="m")})
    assert mutation(archive, history, answerer).vary([(seed,)], first_birth=0, generation=1) == []
    [made] = attempts(history)
    assert (made.outcome, made.claim) == (Outcome.NO_CHANGE, "limit")
    assert answerer.numbers == [(0, 0)]


def test_an_answerer_that_may_recover_leaves_one_question_unanswered(
    archive: Archive, history: History, seed: Individual
) -> None:
    down = AnswererError("503", hint="wait", retryable=True)
    answerer = Scripted({(0, 0): down, (1, 0): turned(STAGES=2)})
    [child] = mutation(archive, history, answerer).vary([(seed,)] * 2, first_birth=0, generation=1)
    assert [made.outcome for made in attempts(history)] == [Outcome.UNANSWERED, Outcome.CHILD]
    assert attempts(history)[0].detail == "503 (wait)"
    assert child.birth == 1
    assert archive.reply(0, 0) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AnswererError("401", hint="check the key", retryable=False), "the answerer gave up: 401 (check the key)"),
        (BudgetExhausted("all spent"), "all spent (raise stop.spend_usd to go on)"),
    ],
)
def test_an_answerer_that_cannot_recover_ends_the_search_and_what_it_said_before_is_kept(
    archive: Archive, history: History, seed: Individual, error: AnswererError, reason: str
) -> None:
    answerer = Scripted({(0, 0): turned(STAGES=2), (1, 0): error, (2, 0): turned(STAGES=3)})
    varying = mutation(archive, history, answerer)
    with pytest.raises(StopSearch) as stop:
        varying.vary([(seed,)] * 3, first_birth=0, generation=1)
    assert stop.value.reason == reason
    assert archive.reply(0, 0) is not None
    assert attempts(history) == []  # the generation is made again on resume


def test_replies_under_way_when_the_search_ends_are_kept(archive: Archive, history: History, seed: Individual) -> None:
    """The first call fails for good while the second, which is paid for, still runs."""
    both_run, failure_is_known = threading.Barrier(2, timeout=10), threading.Event()

    class Slow(Scripted):
        def answer(self, request: Request) -> Reply:
            both_run.wait()
            if request.number == 1:
                failure_is_known.wait(10)
            return super().answer(request)

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failure_is_known.set()

    answerer = Slow({(0, 0): AnswererError("401", hint="key", retryable=False), (1, 0): turned(STAGES=2)})
    log, listening = logging.getLogger("evo.mutation"), Listening()
    log.addHandler(listening)
    try:
        with pytest.raises(StopSearch):
            mutation(archive, history, answerer, concurrency=2).vary([(seed,)] * 2, first_birth=0, generation=1)
    finally:
        log.removeHandler(listening)
    assert [(record.number, record.text) for record in archive.replies()] == [(1, turned(STAGES=2).text)]


def test_nobody_is_asked_after_an_interruption(archive: Archive, history: History, seed: Individual) -> None:
    class Interrupting:
        """An archive that a signal strikes, once, while a reply is recorded."""

        struck = False

        def __getattr__(self, name: str) -> object:
            return getattr(archive, name)

        def record_reply(self, record: ReplyRecord) -> None:
            archive.record_reply(record)
            if not self.struck and record.number == 1:
                self.struck = True
                raise Interrupted("SIGTERM", exit_code=143)

    answerer = Scripted({(number, 0): turned(STAGES=2) for number in range(20)})
    with pytest.raises(Interrupted):
        mutation(Interrupting(), history, answerer).vary([(seed,)] * 20, first_birth=0, generation=1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    assert len(list(archive.replies())) == len(answerer.asked)  # and what was asked is kept


def test_replies_that_the_archive_holds_are_not_asked_for_again(
    archive: Archive, history: History, seed: Individual
) -> None:
    unreadable = Reply(text="no", model="m")
    script: Script = {(0, 0): unreadable, (0, 1): turned(STAGES=2), (1, 0): turned(STAGES=3)}
    first = mutation(archive, history, Scripted(script)).vary([(seed,)] * 2, first_birth=0, generation=1)
    again = History()
    known(again, seed, history.evaluation(seed.id))
    silent = Scripted({})
    second = mutation(archive, again, silent).vary([(seed,)] * 2, first_birth=0, generation=1)
    assert silent.asked == []
    assert second == first
    assert attempts(again) == attempts(history)


def test_a_crossover_has_two_parents(archive: Archive, history: History, seed: Individual) -> None:
    wide = with_knobs(SOURCE, {"WIDTH": 4})
    other = Individual.from_source(wide, birth=0, generation=1, operator="mutate", parent_ids=(seed.id,))
    archive.record_individual(other)
    known(history, other, passed(other.source, {"x": 0.9, "y": 0.9}))
    answerer = Scripted({(1, 0): turned(WIDTH=4, STAGES=2), (2, 0): whole_file(other.source)})
    [child] = mutation(archive, history, answerer).vary([(seed, other)] * 2, first_birth=1, generation=2)
    assert (child.operator, child.parent_ids) == ("crossover", (seed.id, other.id))
    assert answerer.asked[0].parent_sources == (seed.source, other.source)
    assert [made.outcome for made in history.attempts_of(2)] == [Outcome.CHILD, Outcome.DUPLICATE]  # the second parent


def test_a_lone_surrogate_in_a_reply_does_no_harm(archive: Archive, history: History, seed: Individual) -> None:
    text = turned(STAGES=4).text.replace("four knobs", "four \ud800 knobs") + "\nbye \udfff\x00\n"
    answerer = Scripted({(0, 0): Reply(text=text, model="m")})
    [child] = mutation(archive, history, answerer).vary([(seed,)], first_birth=0, generation=1)
    assert 'name = "four ? knobs"' in child.source
    recorded = archive.reply(0, 0)
    assert recorded is not None
    assert recorded.text.endswith("\nbye ?\x00\n")


def test_many_at_once_come_back_in_the_questions_order(archive: Archive, history: History, seed: Individual) -> None:
    knobs = [{"BLOCK_M": block, "STAGES": stages} for block in (16, 64, 128) for stages in (2, 3)]
    answerer = Scripted({(number, 0): turned(**each) for number, each in enumerate(knobs)})
    children = mutation(archive, history, answerer, concurrency=4).vary([(seed,)] * 6, first_birth=0, generation=1)
    assert [child.source for child in children] == [with_knobs(SOURCE, each) for each in knobs]
    assert [child.birth for child in children] == list(range(6))


def test_a_child_of_an_interrupted_making_is_used(archive: Archive, history: History, seed: Individual) -> None:
    source = with_knobs(SOURCE, {"STAGES": 3})
    made = Individual.from_source(
        source, birth=1, generation=1, operator="mutate", parent_ids=(seed.id,), question_id="q"
    )
    archive.record_individual(made)
    [child] = mutation(archive, history, Scripted({(0, 0): whole_file(source)})).vary(
        [(seed,)], first_birth=0, generation=1
    )
    assert child == made
