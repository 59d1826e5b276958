"""A single shot's parents measured once more, beside their children: which they are, their files, their figures.

A parent's first figures are in the prompts, so they are of an earlier sitting than its children's, perhaps of another
machine. Machines of one model differ by about as much as a child gains, so a gain is told within one sitting alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from evo.config import Config
from evo.history import History
from evo.measured import MeasuredFiles, measured_path
from evo.single_shot import passed_seeds
from fitness.evaluation import Evaluation
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.individual import Individual
from population.records import EventRecord

REMEASURED_EVENT = "remeasured"

_FOLDER = "again"  # in measured/


def parents_to_measure(config: Config, history: History) -> list[Individual]:
    """The parents that are measured again wherever a child is: the seeds of a single shot that passed. A search has
    none, for it measures a parent and its children alike, generation by generation.
    """
    return [] if config.single_shot.questions is None else passed_seeds(history)


def files_of_again(files: MeasuredFiles) -> MeasuredFiles:
    """Where the further evaluations lie, beside the first ones."""
    return replace(files, folder=files.folder / _FOLDER)


def find_again(files: MeasuredFiles, source: str) -> Evaluation | None:
    """The further evaluation of a source among these files; None where there is none that a gain could be told by."""
    evaluation = files.find(source)
    if evaluation is not None and evaluation.geomean is None:
        path = measured_path(files.folder, source)
        files.note(f"{path} is not taken: {evaluation.status}, and its parent passed before; measure it again")
        return None
    return evaluation


def record_again(archive: Archive, files: MeasuredFiles, parents: Sequence[Individual]) -> None:
    """Record the further evaluations of these parents, as far as there are any; the first that was told counts."""
    for parent in parents:
        evaluation = find_again(files, parent.source)
        if evaluation is None:
            continue
        recorded = archive.event(REMEASURED_EVENT, parent.id)
        if recorded is None:
            record = strict_json(evaluation.to_json())
            archive.record_event(EventRecord(kind=REMEASURED_EVENT, key=parent.id, record=record))
        elif Evaluation.from_json(parse_json(recorded.record)) != evaluation:
            path = measured_path(files.folder, parent.source)
            files.note(f"{path} differs from the one that was told first, which counts")


def recall_again(archive: ArchiveReader, history: History) -> frozenset[str]:
    """Have a history know parents by their further evaluations; the ids of those.

    One that counts as wrong now, since an audit refused it, stays so.
    """
    found = {
        event.key: Evaluation.from_json(parse_json(event.record))
        for event in archive.events_of(REMEASURED_EVENT)
        if event.key is not None and history.geomean(event.key) > 0.0
    }
    for name, evaluation in found.items():
        history.add_evaluation(name, evaluation)
    return frozenset(found)
