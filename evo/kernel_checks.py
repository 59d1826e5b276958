"""What is looked at before a person's kernel is put to a run, so that bad input is told of at once."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from evo.added_kernels import read_kernel
from evo.attempt_events import ATTEMPT_EVENT, latest_attempts
from evo.config import BackendKind, EvolutionKind
from evo.data import kernel_path
from evo.dropped_files import dropped_files
from evo.history import Outcome
from evo.run_list import RunState, list_runs
from evo.run_options import earlier_overrides, has_options, join_options
from evo.run_settings import flatten_settings, recorded_settings
from evo.seeds import shipped_sources
from evo.settings import ConfigError
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest, same_but_for_knobs
from fitness.rules import check_rules
from population.archive_reader import ArchiveReader
from population.individual import BY_HAND, SEED, individual_id, normalise
from population.run_folder import RunFolder

MOST_BYTES: Final = 1_000_000
_MARKER: Final = re.compile(r"^(?:<{7}|\|{7}|>{7}) ", re.MULTILINE)


def read_source(name: str) -> str:
    """The text of a kernel's file or of a shipped one, normalised. Raises ConfigError for what is no kernel."""
    path = kernel_path(name)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; expected a kernel's .cu file, or the name of a shipped one")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path}: more than {MOST_BYTES} bytes; expected one kernel's text")
        source = normalise(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); expected a kernel's text in UTF-8") from error
    require_kernel(source, str(path))
    return source


def require_kernel(source: str, name: str) -> None:
    """Raise ConfigError where the judge would refuse a text, which the error names, before it compiles it."""
    if left := _MARKER.search(source):
        line = source.count("\n", 0, left.start()) + 1
        raise ConfigError(f"{name}, line {line}: two texts meet there, and nobody has joined them yet; do that first")
    try:
        check_rules(source, read_manifest(source))
    except CandidateFault as fault:
        raise ConfigError(f"{name} is no kernel that can be judged: {' '.join(fault.reason.split())}") from fault


def require_generations(run: RunFolder, archive: ArchiveReader) -> None:
    """Raise ConfigError for a run that has no next generation to take a kernel into, whatever is left of it."""
    settings = recorded_settings(archive) or _options(run)  # a run by files has none before its first measurement
    if settings.get("single_shot.questions") is not None:
        raise ConfigError(f"{run.path}: a single shot has no generations to take a kernel in; name it among its seeds")
    if settings.get("evolution.kind") in (EvolutionKind.steady, EvolutionKind.steady.value):
        raise ConfigError(f"{run.path}: a steady search has no generations, and takes no kernel in; name it as a seed")


def require_individuals(run: RunFolder, archive: ArchiveReader, names: Sequence[str]) -> None:
    """Raise ConfigError for an id that is neither a kernel of the run nor one that waits to be taken in."""
    waiting = waiting_kernels(run) if names else {}
    for name in names:
        if not archive.holds(name) and name not in waiting:
            raise ConfigError(f"{name!r} is no kernel of {run.path}; expected an id, as the names in {run.kernels} are")


def waiting_kernels(run: RunFolder) -> dict[str, Path]:
    """The files of the kernels that were put to a run, taken in or not, by the kernels' ids."""
    found = {}
    for path in dropped_files(run.added):
        try:
            found[read_kernel(path).id] = path
        except ValueError:  # the run says so when it meets it
            continue
    return found


def was_judged(archive: ArchiveReader, name: str) -> bool:
    """Whether a text was measured, and not for a question that was given up since: such a one does not compete."""
    found = archive.find_individual(name)
    if found is None or archive.evaluation_json(name) is None:
        return False
    attempts = latest_attempts(archive.records_where(ATTEMPT_EVENT, "child_id", name))
    led_to = any(attempt.outcome is Outcome.CHILD for attempt in attempts)
    under_way = not archive.records_where(ATTEMPT_EVENT, "generation", found.generation)
    return led_to or under_way or found.operator in (SEED, BY_HAND)


def why_not_run(run: RunFolder, archive: ArchiveReader, source: str) -> str:
    """Why the run's backend will refuse a kernel, and what allows it; "" where it will not, or has judged it.

    What a run allows is looked up among its options: it may change from one part of the run to the next.
    """
    settled = recorded_settings(archive).get("backend")
    if settled not in (None, BackendKind.host.value) or archive.evaluation_json(individual_id(source)) is not None:
        return ""
    options = _options(run)
    native = (settled or options.get("backend.kind")) == BackendKind.host.value
    if not native or options.get("backend.run_model_code") or _is_shipped(source):
        return ""
    return (
        f"{individual_id(source)} changes more than knob values of a shipped seed: on the host backend it is INVALID "
        "for good, unless the run is gone on with under backend.run_model_code=true before it is judged"
    )


def _is_shipped(source: str) -> bool:
    return any(same_but_for_knobs(source, seed) for seed in shipped_sources())


def _options(run: RunFolder) -> dict[str, Any]:
    return flatten_settings(join_options(earlier_overrides(run)).config) if has_options(run) else {}


def why_over(run: RunFolder) -> str:
    """Why a search has come to its end; "" while it has not."""
    row = list_runs(run.path, now=time.time())[0]
    return row.note if row.state is RunState.FINISHED else ""
