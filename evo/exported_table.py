"""The evaluations of runs in one table, which `backend=recorded` answers from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from evo.audits import judged_evaluations
from evo.settings import ConfigError
from fitness.evaluation import Evaluation
from population.archive_reader import read_archive
from population.atomic_file import strict_json
from population.run_folder import RunFolder


def gather_evaluations(runs: Mapping[str, RunFolder]) -> list[Evaluation]:
    """All that the runs have measured, in the runs' order, equal records once; what an audit refused is INCORRECT.

    Of several records of one source the last counts, as the recorded backend has it. Raises ConfigError where the runs
    do not belong into one table: another suite, device, driver, compiler or baseline; ArchiveError.
    """
    found: dict[str, Evaluation] = {}
    first: tuple[str, Evaluation] | None = None
    for name, run in runs.items():
        with read_archive(run) as archive:
            for _, evaluation in judged_evaluations(archive):
                first = first or (name, evaluation)
                _require_like(first, name, evaluation)
                found.setdefault(strict_json(evaluation.to_json()), evaluation)
    if not found:
        raise ConfigError(f"{', '.join(runs)}: nothing was measured there; expected a run with evaluations")
    _require_same_scenarios(list(found.values()))
    return list(found.values())


def _require_like(first: tuple[str, Evaluation], name: str, evaluation: Evaluation) -> None:
    before, now = _circumstances(first[1]), _circumstances(evaluation)
    differing = [f"{key} {before[key]!r} and {now[key]!r}" for key in before if before[key] != now[key]]
    if differing:
        raise ConfigError(f"{first[0]} and {name} were measured apart: {', '.join(differing)}; make a table of each")


def _require_same_scenarios(evaluations: Sequence[Evaluation]) -> None:
    """A suite of one's own may have changed under its name from one run to the next."""
    sets = {tuple(evaluation.speedups) for evaluation in evaluations if evaluation.speedups}
    if len(sets) > 1:
        raise ConfigError(
            f"the suite {evaluations[0].suite} had other scenarios in some of these runs; make a table of each"
        )


def _circumstances(evaluation: Evaluation) -> dict[str, str]:
    return {"suite": evaluation.suite, **asdict(evaluation.environment)}
