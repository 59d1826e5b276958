"""Attempts as the archive holds them: an event each."""

from collections.abc import Iterable

from evo.history import Attempt
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json

ATTEMPT_EVENT = "attempt"


def latest_attempts(records: Iterable[str]) -> list[Attempt]:
    """The attempts of these events' records by their numbers; of several with one number the last."""
    by_number = {each.number: each for each in (Attempt.from_json(parse_json(record)) for record in records)}
    return [by_number[number] for number in sorted(by_number)]


def recorded_attempts(archive: ArchiveReader) -> list[Attempt]:
    """The attempts that an archive holds, by their numbers.

    A generation that had to be made again is there twice, and may have gone otherwise: the later one counts.
    """
    return latest_attempts(event.record for event in archive.events_of(ATTEMPT_EVENT))
