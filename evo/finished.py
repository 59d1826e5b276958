"""A run that has used up what it was given: what is said of it, and how more of it can be had."""

from collections.abc import Mapping

from evo.config import StopConfig
from evo.settings import ConfigError
from evo.stop import limit_behind
from population.archive_reader import ArchiveReader


def refuse_less_than_made(limits: StopConfig, *, evaluations: int, generations: int) -> None:
    """Raise ConfigError for a budget that a run has gone beyond already, which none does by itself."""
    made: Mapping[str, tuple[int | None, int]] = {
        "evaluations": (limits.evaluations, evaluations),
        "generations": (limits.generations, generations),
    }
    for what, (limit, count) in made.items():
        if limit is not None and count > limit:
            raise ConfigError(
                f"stop.{what}={limit}: this run has made {count} {what} already, and all of them are kept; to go on "
                f"with it, give more than {count}, or {count} to end it as it stands"
            )


def amount_done(archive: ArchiveReader) -> tuple[int, int]:
    """How many evaluations were made and questions put: where neither grows, nothing was left to do."""
    return archive.evaluation_count(), archive.next_question_number()


def nothing_left(reason: str, limits: StopConfig, folder: str) -> str:
    """What is said of a run that was gone on with, and stopped for this reason without having done anything."""
    said = "this run was finished before, and nothing was left to do"
    condition = limit_behind(reason, limits)
    if condition is None:
        return said
    return (
        f"{said}; to go on with it: evo evolve resume={folder} stop.{condition.key}=N, "
        f"with N above {condition.limit:g}"
    )
