"""Two kernels of one family joined: what each has changed since their nearest common ancestor, by `git merge-file`."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from evo.settings import ConfigError
from population.archive_reader import ArchiveReader
from population.individual import Individual
from population.lineage import Lineage

_MOST_CONFLICTS: Final = 127  # git's exit code counts them up to there; above it, it failed
_CONFLICT: Final = re.compile(r"^<{7} .*?^>{7} [^\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The joined text, and the lines of it (from 1, the last included) where both had changed the same."""

    source: str
    base: str  # the ancestor's id
    conflicts: tuple[tuple[int, int], ...]


def merge(archive: ArchiveReader, names: tuple[str, str]) -> Merged:
    """The join of two kernels of a run. Raises ConfigError where there is nothing to join, or no git."""
    one, other = (archive.individual(name) for name in names)
    base = _base(archive, one, other)
    git = shutil.which("git")
    if git is None:
        raise ConfigError("git is not found, and joins the texts; install it, or join them by hand: evo kernels add")
    with TemporaryDirectory(prefix="evo-merge-") as folder:
        paths = [Path(folder) / name for name in ("one", "base", "other")]
        for path, individual in zip(paths, (one, base, other), strict=True):
            path.write_bytes(individual.source.encode("utf-8"))
        labels = [word for each in (one, base, other) for word in ("-L", each.id)]
        done = subprocess.run(  # noqa: S603  # our own words, and files that were just written
            [git, "merge-file", "-p", "--diff3", *labels, *map(str, paths)], capture_output=True, check=False
        )
    if not 0 <= done.returncode <= _MOST_CONFLICTS:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise ConfigError(f"git merge-file failed ({why}); join the texts by hand: evo kernels add")
    source = done.stdout.decode("utf-8")
    return Merged(source=source, base=base.id, conflicts=_conflicts(source) if done.returncode else ())


def _base(archive: ArchiveReader, one: Individual, other: Individual) -> Individual:
    lineage = Lineage((birth.id, birth.parent_ids) for birth in archive.births())
    base = lineage.nearest_common(one.id, other.id)
    if base is None:
        raise ConfigError(f"{one.id} and {other.id} have no common ancestor in this run; join their texts by hand")
    if base in (one.id, other.id):
        later = other.id if base == one.id else one.id
        raise ConfigError(f"{later} came of {base}, whose text it has changed already; expected two of different lines")
    return archive.individual(base)


def _conflicts(source: str) -> tuple[tuple[int, int], ...]:
    def line_at(place: int) -> int:
        return source.count("\n", 0, place) + 1

    return tuple((line_at(found.start()), line_at(found.end())) for found in _CONFLICT.finditer(source))
