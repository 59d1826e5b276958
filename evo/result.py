"""result.json: the outcome of a run in one strict JSON object, worked out from the archive alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from evo.audits import CHAMPION_EVENT, judged_scores, recorded_audits, verdict
from evo.evaluation_records import evaluation_of
from fitness.audit_record import Audit
from fitness.evaluation import Environment, Evaluation
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json, write_atomically
from population.faults import RunFolderError
from population.records import Score
from population.run_folder import RunFolder

SCHEMA = 1

Scored = TypeVar("Scored", Evaluation, Score)


def build_result(
    archive: ArchiveReader, *, settings: dict[str, Any], generations: int, stop_reason: str
) -> dict[str, Any]:
    """The result of a run. `settings` holds suite, style, answerer and rng_seed.

    `seed` is the best of the seeds, `best` the best of all; both are None where nothing passed. `history` is the best
    geometric mean after each evaluation, 0.0 until one passed.
    """
    judged, audits, seeds = list(judged_scores(archive)), recorded_audits(archive, CHAMPION_EVENT), archive.seed_ids()
    where, best = first_environment(archive), best_of([(score.individual_id, score) for score in judged])
    return {
        "schema": SCHEMA,
        "backend": where and where.backend,
        "device": where and where.device,
        "baseline": where and {"name": where.baseline, "version": where.baseline_version},
        **settings,
        "generations": generations,
        "evaluations": len(judged),
        "stop_reason": stop_reason,
        "seed": _seed(best_of([(score.individual_id, score) for score in judged if score.individual_id in seeds])),
        "best": _best(best[0], evaluation_of(archive, best[0]), audits) if best else None,
        "history": list(accumulate((score.geomean or 0.0 for score in judged), max)),
        "failures": dict(Counter(score.status for score in judged if score.geomean is None)),
        "spend": archive.spend_so_far(),
    }


def best_of(judged: Sequence[tuple[str, Scored]]) -> tuple[str, Scored] | None:
    """The individual with the greatest geomean, the earliest of equals; None where nothing passed."""
    passed = [pair for pair in judged if pair[1].geomean is not None]
    return max(passed, key=lambda pair: pair[1].geomean or 0.0, default=None)


def read_result(run: RunFolder) -> dict[str, Any] | None:
    """What result.json holds, or None where there is none. Raises RunFolderError for a file that is no result."""
    try:
        result = parse_json(run.result.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{run.result} cannot be read ({error}); resume the run, which writes it again") from error
    if not isinstance(result, dict) or not isinstance(result.get("stop_reason"), str):
        raise RunFolderError(f"{run.result} is no result of a run; resume the run, which writes it again")
    return result


def is_current(result: Mapping[str, Any], *, generations: int, evaluations: int) -> bool:
    """Whether nothing came after a result: a part of the run that was killed leaves that of the part before it."""
    return (result.get("generations"), result.get("evaluations")) == (generations, evaluations)


def first_environment(archive: ArchiveReader) -> Environment | None:
    """Where a run's first candidate was measured; None before that."""
    for record in archive.evaluations():
        return Evaluation.from_json(parse_json(record.record)).environment
    return None


def write_result(run: RunFolder, result: dict[str, Any]) -> None:
    """Put result.json in place, whole or not at all."""
    write_atomically(run.result, strict_json(result, sort_keys=False, indent=2) + "\n")


def _seed(best: tuple[str, Score] | None) -> dict[str, Any] | None:
    return None if best is None else {"id": best[0], "geomean": best[1].geomean}


def _best(name: str, evaluation: Evaluation | None, audits: Mapping[str, Audit]) -> dict[str, Any] | None:
    if evaluation is None or evaluation.worst is None:
        return None
    audit = audits.get(name)
    return {
        "id": name,
        "geomean": evaluation.geomean,
        "worst_scenario": evaluation.worst.scenario,
        "worst_speedup": evaluation.worst.speedup,
        "speedups": evaluation.speedups,
        "audit": verdict(audit),
        "audit_made": list(audit.made) if audit else [],
        "audit_left_out": audit.left_out if audit else {},
    }
