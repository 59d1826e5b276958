"""Questions that people put to a run while it searches: a file each, asked before any other from the next mutation on.

Adding one needs no lock. The search takes it in at a mutation, and records at which: a generation that is made again
asks it at the same one.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.dropped_files import drop_file, dropped_files
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord
from population.run_folder import RunFolder
from questions.entry import BankError, read_entry, write_entry
from questions.question import Question
from questions.sampler import QuestionSampler

QUESTION_ADDED = "question_added"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TakenIn:
    """A person's question that a search knows of: from which mutation on, and by which file."""

    name: str
    number: int
    question: Question


class AddedQuestions:
    """Hands people's questions to the sampler as they come. Used by the thread that writes the archive."""

    def __init__(self, *, folder: Path, archive: Archive, sampler: QuestionSampler) -> None:
        self._folder = folder
        self._archive = archive
        self._sampler = sampler
        self._known = {taken.name: taken for taken in questions_taken_in(archive)}
        self._refused: set[str] = set()

    def take_in(self, number: int) -> None:
        """Hand over what was taken in at this mutation before an interruption, and else what has come since."""
        for taken in self._known.values():
            if taken.number == number:
                self._sampler.push(taken.question)
        if self._archive.question(number) is None:  # one that was asked before the interruption is asked again
            for path in dropped_files(self._folder):
                if path.stem not in self._known and path.stem not in self._refused:
                    self._take(path, number)

    def _take(self, path: Path, number: int) -> None:
        try:
            question = read_question(path)
            self._sampler.push(question)
        except (BankError, ValueError) as fault:
            self._refused.add(path.stem)
            logger.warning("%s is not asked: %s", path, fault)
            return
        record = strict_json({"number": number, "question": write_entry(question)})
        self._archive.record_event(EventRecord(kind=QUESTION_ADDED, key=path.stem, record=record))
        self._known[path.stem] = TakenIn(name=path.stem, number=number, question=question)


def add_question(run: RunFolder, question: Question) -> Path:
    """The file that now holds the question. The same one may be added again, to be asked again.

    Raises RunFolderError where it cannot be written.
    """
    return drop_file(run.questions, question.id, write_entry(question))


def read_question(path: Path) -> Question:
    """The question in a file. Raises BankError for anything else."""
    try:
        entry = parse_json(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise BankError(f"it cannot be read ({error}); put the question again") from error
    return read_entry(entry, "its entry")


def questions_taken_in(archive: ArchiveReader) -> Iterator[TakenIn]:
    """The people's questions that a run has taken in, in that order."""
    for event in archive.events_of(QUESTION_ADDED):
        record: Mapping[str, Any] = parse_json(event.record)
        question = read_entry(record["question"], f"event {event.key}")
        yield TakenIn(name=str(event.key), number=record["number"], question=question)
