"""An individual's evaluation into the archive, and out of it again."""

from fitness.evaluation import Evaluation
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EvaluationRecord


def record_evaluation(archive: Archive, individual_id: str, evaluation: Evaluation) -> None:
    """Put what was measured of an individual into the archive."""
    archive.record_evaluation(
        EvaluationRecord(
            individual_id=individual_id,
            key=evaluation.key,
            status=str(evaluation.status),
            geomean=evaluation.geomean,
            record=strict_json(evaluation.to_json()),
        )
    )


def evaluation_of(archive: ArchiveReader, individual_id: str) -> Evaluation | None:
    """What an archive holds of an individual's measurement."""
    recorded = archive.evaluation_json(individual_id)
    return None if recorded is None else Evaluation.from_json(parse_json(recorded))
