"""Attempts as the archive holds them: an event each."""

from collections.abc import Iterable

from evo.history import Attempt
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json
from population.records import EventRecord

ATTEMPT_EVENT = "attempt"


def latest_attempts(events: Iterable[EventRecord]) -> list[Attempt]:
    """The attempts of these events by their numbers; of several with one number the last."""
    by_number = {each.number: each for each in (Attempt.from_json(parse_json(event.record)) for event in events)}
    return [by_number[number] for number in sorted(by_number)]


def recorded_attempts(archive: ArchiveReader) -> list[Attempt]:
    """The attempts that an archive holds, by their numbers.

    A generation that had to be made again is there twice, and may have gone otherwise: the later one counts.
    """
    return latest_attempts(archive.events_of(ATTEMPT_EVENT))
