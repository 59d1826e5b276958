"""What a steady search has under way, as its archive holds it: enough to ask and to measure it again after a kill."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from evo.asking import Asked
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord
from questions.entry import read_entry, write_entry
from questions.question import Moment, Question
from questions.triggers import Trigger

ASKED_EVENT = "asked"  # a question, before anything else of it is recorded
OPEN_EVENT = "open_questions"  # the numbers of those that a checkpoint has left open


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """All of a question that its prompt and its archived row do not hold."""

    number: int
    generation: int
    parent_ids: tuple[str, ...]
    question: Question
    trigger: Trigger
    hint: str


def as_open(asked: Asked) -> OpenQuestion:
    """A question as the archive holds it while it is open."""
    return OpenQuestion(
        number=asked.number,
        generation=asked.generation,
        parent_ids=tuple(parent.id for parent in asked.parents),
        question=asked.question,
        trigger=asked.trigger,
        hint=asked.hint,
    )


def record_asked(archive: Archive, asked: OpenQuestion) -> None:
    """Keep what a question is asked about, so that it can be asked again."""
    record = {
        "number": asked.number,
        "generation": asked.generation,
        "parents": list(asked.parent_ids),
        "question": write_entry(asked.question),
        "moment": str(asked.trigger.moment),
        "reason": asked.trigger.reason,
        "hint": asked.hint,
    }
    archive.record_event(EventRecord(kind=ASKED_EVENT, record=strict_json(record)))


def record_open(archive: Archive, generation: int, numbers: Iterable[int]) -> None:
    """Keep which questions the checkpoint of a generation, which is about to be written, leaves open."""
    record = strict_json({"generation": generation, "numbers": sorted(numbers)})
    archive.record_event(EventRecord(kind=OPEN_EVENT, record=record))


def open_at(archive: ArchiveReader, generation: int) -> frozenset[int]:
    """The questions that the checkpoint of a generation left open; none in a generational search."""
    records = archive.records_where(OPEN_EVENT, "generation", generation)
    return frozenset(parse_json(records[-1])["numbers"]) if records else frozenset()


def open_questions(archive: ArchiveReader, generation: int, next_birth: int) -> list[OpenQuestion]:
    """What was under way at a checkpoint and what was asked after it, by their numbers."""
    later = range(next_birth, archive.next_question_number())
    found = (archive.records_where(ASKED_EVENT, "number", number) for number in (*open_at(archive, generation), *later))
    questions = [_read(parse_json(records[-1])) for records in found if records]
    return sorted(questions, key=lambda question: question.number)


def _read(record: dict[str, Any]) -> OpenQuestion:
    return OpenQuestion(
        number=record["number"],
        generation=record["generation"],
        parent_ids=tuple(record["parents"]),
        question=read_entry(record["question"], f"question {record['number']}"),
        trigger=Trigger(moment=Moment(record["moment"]), reason=record["reason"]),
        hint=record["hint"],
    )
