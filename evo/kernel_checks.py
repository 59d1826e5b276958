"""What is looked at before a person's kernel is put to a run, so that bad input is told of at once."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from evo.added_kernels import kernel_files, read_kernel
from evo.config import EvolutionKind
from evo.data import kernel_path
from evo.run_list import RunState, list_runs
from evo.run_options import earlier_overrides, has_options, join_options
from evo.run_settings import flatten_settings, recorded_settings
from evo.settings import ConfigError
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest
from fitness.rules import check_rules
from population.archive_reader import ArchiveReader
from population.individual import normalise
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
    settings = recorded_settings(archive)
    if not settings and has_options(run):  # a run by files before its first measurement
        settings = flatten_settings(join_options(earlier_overrides(run)).config)
    if settings.get("single_shot.questions") is not None:
        raise ConfigError(f"{run.path}: a single shot has no generations to take a kernel in; name it among its seeds")
    if settings.get("evolution.kind") in (EvolutionKind.steady, EvolutionKind.steady.value):
        raise ConfigError(f"{run.path}: a steady search has no generations, and takes no kernel in; name it as a seed")


def require_individuals(run: RunFolder, archive: ArchiveReader, names: Sequence[str]) -> None:
    """Raise ConfigError for an id that is neither a kernel of the run nor one that waits to be taken in."""
    for name in names:
        if not archive.holds(name) and name not in waiting_kernels(run):
            raise ConfigError(f"{name!r} is no kernel of {run.path}; expected an id, as the names in {run.kernels} are")


def waiting_kernels(run: RunFolder) -> dict[str, Path]:
    """The files of the kernels that were put to a run, taken in or not, by the kernels' ids."""
    found = {}
    for path in kernel_files(run.added):
        try:
            found[read_kernel(path).id] = path
        except ValueError:  # the run says so when it meets it
            continue
    return found


def why_over(run: RunFolder) -> str:
    """Why a search has come to its end; "" while it has not."""
    row = list_runs(run.path, now=time.time())[0]
    return row.note if row.state is RunState.FINISHED else ""
