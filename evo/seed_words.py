"""The words of a command line that begin a run with the seed kernels of another."""

import re
from collections.abc import Sequence
from pathlib import Path

from evo.settings import quoted
from population.archive_reader import read_archive
from population.run_folder import RunFolder

_PLAIN = re.compile(r"[\w./-]+", re.ASCII)


def seed_words(runs: Sequence[RunFolder]) -> list[str]:
    """Those of the first of the runs whose seeds still lie in its kernels/; no word where none has them. Raises
    RunFault.
    """
    for run in runs:
        with read_archive(run) as archive:
            seeds = sorted(map(archive.individual, archive.seed_ids()), key=lambda seed: -seed.birth)
        files = [run.kernels / f"{seed.id}.cu" for seed in seeds]
        if files and all(file.is_file() for file in files):
            return [f"seeds=[{','.join(map(_as_item, files))}]"]
    return []


def _as_item(path: Path) -> str:
    """The path in a list as Hydra reads it, in quotes only where it needs them: the shell's come on top."""
    return str(path) if _PLAIN.fullmatch(str(path)) else quoted(path)
