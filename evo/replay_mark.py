"""What marks a run as a replay: its figures are those of another run, whose trace it followed."""

from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord

REPLAY_EVENT = "replay"


def mark_replay(archive: Archive, run: str) -> None:
    """Note the name of the run that is replayed."""
    archive.record_event(EventRecord(kind=REPLAY_EVENT, record=strict_json(run)))


def replayed_run(archive: ArchiveReader) -> str | None:
    """The name of the run that this one replays; None where it is a search of its own."""
    events = archive.events_of(REPLAY_EVENT)  # several where a replay is replayed: the first is its own
    return str(parse_json(events[0].record)) if events else None
