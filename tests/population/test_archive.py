"""What the archive keeps, and how it answers."""

import dataclasses
import hashlib
import logging
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from population.archive import create_archive, open_archive
from population.archive_reader import PAGE_ROWS, read_archive
from population.faults import ArchiveError
from population.individual import Individual, set_fitness
from population.records import (
    Birth,
    EvaluationRecord,
    EventRecord,
    PromptRecord,
    QuestionRecord,
    ReplyRecord,
    Score,
    SpendRecord,
)
from population.run_folder import create_run_folder

SEED = Individual.from_source("int seed;", birth=-1, generation=0, operator="seed")
CHILD = Individual.from_source(
    "int child;", birth=0, generation=1, operator="mutate", parent_ids=(SEED.id,), question_id="tile-shape"
)
EVALUATION = EvaluationRecord(individual_id=SEED.id, key="e1", status="PASSED", geomean=1.1, record='{"geomean": 1.1}')
PROMPT = PromptRecord(number=0, attempt=0, text="What bounds it? {threadIdx.x}\r\n\0×")
REPLY = ReplyRecord(
    number=0,
    attempt=0,
    text="",
    model="offline",
    finish_reason="stop",
    prompt_tokens=10,
    completion_tokens=5,
    cost_usd=0.1,
    estimated=True,
)
QUESTION = QuestionRecord(
    number=0, question_id="tile-shape", moment="stall", layer="schedule", style="question", text="?", origin="bank"
)
EVENT = EventRecord(kind="duplicate", record="{}", key="17")
SPEND = SpendRecord(key="evaluation e1", kind="evaluation_s", amount=2.5)


@pytest.fixture
def run(tmp_path):
    return create_run_folder(tmp_path, "first")


@pytest.fixture
def archive(run):
    with create_archive(run) as archive:
        yield archive


def record_all(archive):
    archive.record_individual(SEED)
    archive.record_individual(CHILD)
    archive.record_evaluation(EVALUATION)
    archive.record_prompt(PROMPT)
    archive.record_reply(REPLY)
    archive.record_question(QUESTION)
    archive.record_event(EVENT)
    archive.record_spend(SPEND)


def record_reply_twice(archive):
    archive.record_reply(REPLY)
    archive.record_reply(dataclasses.replace(REPLY, model="another"))


def everything(archive):
    return [
        list(rows())
        for rows in (
            archive.individuals, archive.evaluations, archive.prompts, archive.replies,
            archive.questions, archive.events, archive.spend,
        )
    ]  # fmt: skip


ALL = [[SEED, CHILD], [EVALUATION], [PROMPT], [REPLY], [QUESTION], [EVENT], [SPEND]]


def test_all_that_is_recorded_comes_back_equal(archive, run):
    record_all(archive)
    assert everything(archive) == ALL
    with read_archive(run) as reader:
        assert everything(reader) == ALL


def test_it_comes_back_after_closing_too(run):
    with create_archive(run) as archive:
        record_all(archive)
    with open_archive(run) as archive:
        assert everything(archive) == ALL
    assert sorted(path.name for path in run.path.glob("archive*")) == ["archive.lock", "archive.sqlite"]


def test_recording_again_adds_nothing(archive, run):
    for _ in range(3):
        record_all(archive)
    assert everything(archive) == ALL
    archive.close()
    with open_archive(run) as resumed:
        record_all(resumed)
        assert everything(resumed) == ALL


@pytest.mark.parametrize(
    ("method", "record", "message"),
    [
        ("record_evaluation", dataclasses.replace(EVALUATION, geomean=1.2), "evaluations k.* e1: .*another geomean"),
        ("record_prompt", dataclasses.replace(PROMPT, text="Faster!"), "prompts 0 0: .*another text"),
        ("record_reply", dataclasses.replace(REPLY, model="m", cost_usd=9.0), "replies 0 0.*another model, cost_usd"),
        ("record_question", dataclasses.replace(QUESTION, question_id="q"), "questions 0.*another question_id"),
        ("record_event", dataclasses.replace(EVENT, record="[]"), "events duplicate 17.*another record"),
        ("record_spend", dataclasses.replace(SPEND, amount=3.0), "spend evaluation e1 evaluation_s.*another amount"),
        ("record_individual", dataclasses.replace(CHILD, operator="crossover"), "candidates .*another operator"),
        ("record_individual", dataclasses.replace(SEED, birth=-2), "candidates .*another birth"),
    ],
)
def test_another_content_under_the_same_key_is_an_error_and_the_first_stays(archive, method, record, message):
    record_all(archive)
    with pytest.raises(ArchiveError, match=message):
        getattr(archive, method)(record)
    assert everything(archive) == ALL


def test_two_individuals_cannot_have_one_birth(archive):
    archive.record_individual(SEED)
    other = Individual.from_source("int other;", birth=-1, generation=0, operator="seed")
    with pytest.raises(ArchiveError, match="birth -1 is another individual's"):
        archive.record_individual(other)


def test_events_without_a_key_may_repeat(archive):
    for _ in range(2):
        archive.record_event(EventRecord(kind="resumed", record="{}"))
    assert len(list(archive.events())) == 2


def test_an_individual_whose_id_is_not_its_sources_is_refused(archive, run):
    with pytest.raises(ArchiveError, match=f"expected {SEED.id}, the id of its source"):
        archive.record_individual(dataclasses.replace(SEED, id="../../k"))
    assert list(run.kernels.iterdir()) == []


def test_parents_and_evaluated_individuals_must_be_recorded_first(archive):
    with pytest.raises(ArchiveError, match=f"parent of {CHILD.id}: {SEED.id} is not recorded"):
        archive.record_individual(CHILD)
    with pytest.raises(ArchiveError, match=f"evaluation e1: {SEED.id} is not recorded"):
        archive.record_evaluation(EVALUATION)
    assert everything(archive) == [[]] * 7


def test_a_source_that_is_no_unicode_is_refused(archive):
    with pytest.raises(ArchiveError, match="a value that SQLite cannot hold"):
        archive.record_individual(dataclasses.replace(SEED, source="\ud800"))
    with pytest.raises(ArchiveError, match="a value that SQLite cannot hold"):
        archive.record_prompt(dataclasses.replace(PROMPT, text="\ud800"))


@pytest.mark.parametrize("record", ["", "{", "NaN", '{"a": Infinity}'])
def test_records_are_strict_json(record):
    with pytest.raises(ValueError):  # noqa: PT011  # json's own messages vary with the version
        dataclasses.replace(EVALUATION, record=record)
    with pytest.raises(ValueError):  # noqa: PT011
        dataclasses.replace(EVENT, record=record)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value):
    for record, name in ((EVALUATION, "geomean"), (REPLY, "cost_usd"), (SPEND, "amount")):
        with pytest.raises(ValueError, match="expected a finite number"):
            dataclasses.replace(record, **{name: value})


@settings(deadline=None, max_examples=20)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])), number=st.integers(-(2**63), 2**63 - 1))
def test_texts_and_numbers_come_back_to_the_last_bit(tmp_path_factory, text, number):
    with create_archive(create_run_folder(tmp_path_factory.mktemp("runs"), "any")) as archive:
        reply = dataclasses.replace(REPLY, text=text, number=number, cost_usd=0.1 + 0.2)
        archive.record_reply(reply)
        assert archive.reply(number, 0) == reply


def test_an_individual_comes_back_without_a_fitness(archive):
    judged = dataclasses.replace(SEED)
    set_fitness(judged, 1.5)
    archive.record_individual(judged)
    assert archive.individual(SEED.id) == SEED
    assert not archive.individual(SEED.id).fitness.valid
    assert archive.holds(SEED.id)
    assert not archive.holds(CHILD.id)
    with pytest.raises(ArchiveError, match=f"no individual {CHILD.id}"):
        archive.individual(CHILD.id)


def test_births_tell_all_but_the_source(archive):
    record_all(archive)
    assert list(archive.births())[1] == Birth(
        id=CHILD.id,
        source_sha256=hashlib.sha256(b"int child;\n").hexdigest(),
        birth=0,
        generation=1,
        operator="mutate",
        parent_ids=(SEED.id,),
        question_id="tile-shape",
    )


def test_evaluations_are_found_by_individual_and_key(archive):
    record_all(archive)
    later = dataclasses.replace(EVALUATION, key="e2", status="INCORRECT", geomean=None, record='{"reason": "nan"}')
    archive.record_evaluation(later)
    assert archive.evaluation_json(SEED.id) == '{"reason": "nan"}'
    assert archive.evaluation_json(SEED.id, "e1") == '{"geomean": 1.1}'
    assert archive.evaluation_json(SEED.id, "e3") is None
    assert archive.evaluation_json(CHILD.id) is None
    assert archive.evaluation_count() == 2
    assert archive.statuses() == {"INCORRECT": 1, "PASSED": 1}
    assert list(archive.scores()) == [
        Score(individual_id=SEED.id, key="e1", status="PASSED", geomean=1.1),
        Score(individual_id=SEED.id, key="e2", status="INCORRECT", geomean=None),
    ]


def test_what_a_mutation_asked_and_got_is_found_by_its_number(archive):
    record_all(archive)
    assert (archive.prompt(0, 0), archive.prompt(0, 1)) == (PROMPT, None)
    assert (archive.reply(0, 0), archive.reply(1, 0)) == (REPLY, None)
    assert (archive.question(0), archive.question(1)) == (QUESTION, None)


def test_spend_adds_replies_and_the_rest(archive):
    assert archive.spend_so_far() == {"prompt_tokens": 0, "completion_tokens": 0, "cost_usd": 0}
    archive.record_reply(REPLY)
    archive.record_reply(dataclasses.replace(REPLY, attempt=1, cost_usd=0.25))
    archive.record_spend(SPEND)
    archive.record_spend(SpendRecord(key="failed call 3", kind="cost_usd", amount=0.5))
    spent = archive.spend_so_far()
    assert spent == {
        "prompt_tokens": 20, "completion_tokens": 10, "cost_usd": pytest.approx(0.85), "evaluation_s": 2.5,
    }  # fmt: skip


def test_a_transaction_keeps_all_or_nothing(archive):
    with archive.transaction():
        archive.record_individual(SEED)
        archive.record_evaluation(EVALUATION)
    with pytest.raises(ArchiveError, match="another model"), archive.transaction():
        record_reply_twice(archive)
    assert everything(archive) == [[SEED], [EVALUATION], [], [], [], [], []]


def test_transactions_do_not_nest(archive):
    with pytest.raises(ArchiveError, match="within a transaction"), archive.transaction(), archive.transaction():
        pass
    archive.record_prompt(PROMPT)
    assert list(archive.prompts()) == [PROMPT]


def test_nothing_can_be_changed_or_deleted(archive):
    record_all(archive)
    for table in ("candidates", "evaluations", "prompts", "replies", "questions", "events", "spend"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET position = position + 1"):
            with pytest.raises(Exception, match="the archive is append-only"):
                archive._connection.execute(statement)


def test_reading_goes_on_while_rows_are_added(archive, run):
    with archive.transaction():
        for number in range(PAGE_ROWS + 10):
            archive.record_prompt(PromptRecord(number=number, attempt=0, text="?"))
    with read_archive(run) as reader:
        rows = reader.prompts()
        assert next(rows).number == 0
        archive.record_prompt(PromptRecord(number=-5, attempt=0, text="!"))
        assert [row.number for row in rows] == [*range(1, PAGE_ROWS + 10), -5]


def test_many_individuals(archive):
    births = [Individual.from_source(f"int a{n};", birth=n, generation=n, operator="seed") for n in range(1_000)]
    with archive.transaction():
        for individual in births:
            archive.record_individual(individual)
    assert [birth.id for birth in archive.births()] == [individual.id for individual in births]
    assert archive.individual(births[-1].id) == births[-1]


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT 1 FROM candidates WHERE id = 'k'", "sqlite_autoindex_candidates_1"),
        ("SELECT record FROM evaluations WHERE individual_id = 'k'", "sqlite_autoindex_evaluations_1"),
        ("SELECT text FROM replies WHERE number = 1 AND attempt = 0", "sqlite_autoindex_replies_1"),
        ("SELECT status, count(*) FROM evaluations GROUP BY status", "COVERING INDEX evaluations_by_status"),
        ("SELECT sum(prompt_tokens), sum(cost_usd) FROM replies", "COVERING INDEX replies_by_cost"),
    ],
)
def test_queries_of_the_loop_use_an_index(archive, sql, index):
    plan = archive._connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
    assert index in plan[0]["detail"]


def test_another_thread_is_told_that_it_may_not(archive):
    told = []

    def record():
        try:
            archive.record_prompt(PROMPT)
        except ArchiveError as error:
            told.append(str(error))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert "can only be used in that same thread" in told[0]


def test_kernels_are_files_too(archive, run):
    record_all(archive)
    assert {path.name: path.read_bytes() for path in run.kernels.iterdir()} == {
        f"{SEED.id}.cu": b"int seed;\n",
        f"{CHILD.id}.cu": b"int child;\n",
    }
    assert list(archive.kernel_faults()) == []


def alter(path, content):
    """As a person would, a second after it was written."""
    written = path.stat().st_mtime
    path.write_bytes(content)
    os.utime(path, (written + 1, written + 1))


def test_a_missing_and_an_altered_kernel_file_are_noticed_and_the_archive_counts(archive, run, caplog):
    record_all(archive)
    seed, child = run.kernels / f"{SEED.id}.cu", run.kernels / f"{CHILD.id}.cu"
    seed.unlink()
    alter(child, b"int child;\r\n")
    assert list(archive.kernel_faults()) == [
        f"{seed} is missing; the archive still holds the source",
        f"{child} was altered since it was recorded; the archive's source counts",
    ]
    with caplog.at_level(logging.WARNING):
        assert archive.individual(SEED.id) == SEED
        assert archive.individual(CHILD.id) == CHILD
    assert [message.split(" ")[0] for message in caplog.messages] == [str(seed), str(child)]
    record_all(archive)
    assert list(archive.kernel_faults()) == []


def test_a_file_that_was_not_written_since_is_not_read_again(archive, run):
    """A hundred thousand of them would take minutes at every resume."""
    record_all(archive)
    child = run.kernels / f"{CHILD.id}.cu"
    written = child.stat()
    child.write_bytes(b"int child;\r\n")
    os.utime(child, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert list(archive.kernel_faults()) == []
    assert archive.individual(CHILD.id) == CHILD


def test_an_event_is_found_by_its_key(archive):
    archive.record_event(EVENT)
    archive.record_event(EventRecord(kind="duplicate", record="[1]"))
    assert archive.event("duplicate", "17") == EVENT
    assert archive.event("duplicate", "18") is None
    assert archive.event("other", "17") is None


def test_the_best_geomeans_are_those_of_what_passed(archive):
    assert archive.best_geomeans() == (None, None)
    archive.record_individual(SEED)
    archive.record_evaluation(dataclasses.replace(EVALUATION, status="INCORRECT", geomean=None))
    assert archive.best_geomeans() == (None, None)
    archive.record_individual(CHILD)
    archive.record_evaluation(dataclasses.replace(EVALUATION, individual_id=CHILD.id, geomean=1.5))
    assert archive.best_geomeans() == (1.5, None)
    archive.record_evaluation(dataclasses.replace(EVALUATION, key="e2", geomean=1.2))
    assert archive.best_geomeans() == (1.5, 1.2)
    [best] = [each.individual_id for each in archive.scores() if each.geomean == 1.5]
    assert archive.best_geomeans(without=[best, "nobody"]) == (1.2, 1.2)
