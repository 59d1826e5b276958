"""A single shot's parents measured once more, beside their children: which they are, and what is recorded of them.

A parent's first figures are in the prompts, so they are of an earlier sitting than its children's, perhaps of another
machine. Machines of one model differ by about as much as a child gains, so a gain is told within one sitting alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evo.config import Config
from evo.history import History
from evo.measured import MeasuredFiles
from evo.single_shot import passed_seeds
from evo.sittings import Sitting, checksum, read_sittings
from fitness.evaluation import Evaluation
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.faults import ArchiveError
from population.individual import Individual
from population.records import EventRecord

REMEASURED_EVENT = "remeasured"


def parents_to_measure(config: Config, history: History) -> list[Individual]:
    """The parents that are measured again wherever a child is: the seeds of a single shot that passed. A search has
    none, for it measures a parent and its children alike, generation by generation.
    """
    return [] if config.single_shot.questions is None else passed_seeds(history)


def usable_sittings(files: MeasuredFiles, parents: Sequence[Individual]) -> dict[Path, Sitting]:
    """The sittings among a run's files that say something of these parents; notes tell of what cannot be used."""
    sources = {parent.id: parent.source for parent in parents}
    found = {
        path: replace(sitting, parents=_usable(path, sitting, sources, files))
        for path, sitting in (read_sittings(files.folder, files.note) if parents else {}).items()
    }
    return {path: sitting for path, sitting in found.items() if sitting.parents}


def record_sittings(archive: Archive, sittings: Mapping[Path, Sitting], note: Callable[[str], None]) -> None:
    """Record these sittings, each by its name and the number of its children: one that has grown is another event."""
    told = {event.key: event.record for event in archive.events_of(REMEASURED_EVENT)}
    for path, sitting in sittings.items():
        key, record = f"{path.stem}/{len(sitting.children)}", strict_json(sitting.to_json())
        if key not in told:
            archive.record_event(EventRecord(kind=REMEASURED_EVENT, key=key, record=record))
        elif told[key] != record:
            note(f"{path} differs from what was told first, which counts")


def parents_beside(run: str, archive: ArchiveReader) -> dict[str, Mapping[str, Evaluation]]:
    """By a child's id the evaluations of parents of the sitting that measured it; without a child whose sitting is not
    known, or of which several say otherwise. Raises ArchiveError for an event that is no sitting.
    """
    sittings = [_recorded(run, event) for event in archive.events_of(REMEASURED_EVENT)]
    found: dict[str, Mapping[str, Evaluation]] = {}
    for evaluation in archive.evaluations() if sittings else ():
        name, known_by = evaluation.individual_id, checksum(evaluation.record)
        beside = [sitting.parents for sitting in sittings if sitting.children.get(name) == known_by]
        if beside and all(parents == beside[0] for parents in beside):
            found[name] = beside[0]
    return found


def _usable(
    path: Path, sitting: Sitting, sources: Mapping[str, str], files: MeasuredFiles
) -> dict[str, Evaluation]:  # fmt: skip
    usable = {}
    for name, evaluation in sitting.parents.items():
        if name not in sources:
            files.note(f"{path}: {name} is no parent of this run; a candidate is measured by evo evaluate once more")
        elif refusal := files.job.refusal(sources[name], evaluation):
            files.note(f"{path} is not taken: {name}: {refusal}")
            return {}
        elif evaluation.geomean is None:
            files.note(f"{path}: {name} is not taken: {evaluation.status}, and it passed before")
        else:
            usable[name] = evaluation
    return usable


def _recorded(run: str, event: EventRecord) -> Sitting:
    try:
        return Sitting.from_json(parse_json(event.record))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"{run}: event {event.kind} {event.key} is no sitting ({error!r}); was another version of evo at work?"
        ) from error
