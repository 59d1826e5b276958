"""Two kernels of one family joined: what each has changed since their nearest common ancestor, by `git merge-file`.

Knobs stand on neighbouring lines, where any two changes would meet: their values are joined one by one.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from evo.settings import ConfigError
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest, with_knobs
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
    sources = with_joined_knobs((one.source, base.source, other.source))
    source, meets = merge_texts(sources, (one.id, base.id, other.id), git=shutil.which("git"))
    return Merged(source=source, base=base.id, conflicts=_conflicts(source) if meets else ())


def with_joined_knobs(sources: Sequence[str]) -> list[str]:
    """One text, the base and the other, with the value of each knob that one of them changed at most, in all three."""
    try:
        tables = [{knob.name: knob.value for knob in read_manifest(source).knobs} for source in sources]
    except CandidateFault:  # of a kernel that the judge refused
        return list(sources)
    joined = {}
    for name in tables[0].keys() & tables[1].keys() & tables[2].keys():
        one, base, other = (table[name] for table in tables)
        if base in (one, other) or one == other:
            joined[name] = other if one == base else one
    return [with_knobs(source, joined) for source in sources]


def merge_texts(sources: Sequence[str], names: Sequence[str], *, git: str | None) -> tuple[str, bool]:
    """One text, the base and the other joined, and whether they meet somewhere. Raises ConfigError without git."""
    if git is None:
        raise ConfigError("git is not found, and joins the texts; install it, or join them by hand: evo kernels add")
    with TemporaryDirectory(prefix="evo-merge-") as folder:
        paths = [Path(folder) / name for name in ("one", "base", "other")]
        for path, source in zip(paths, sources, strict=True):
            path.write_bytes(source.encode("utf-8"))
        labels = [word for name in names for word in ("-L", name)]
        done = subprocess.run(  # noqa: S603  # our own words, and files that were just written
            [git, "-c", "merge.conflictStyle=merge", "merge-file", "-p", *labels, *map(str, paths)],
            capture_output=True,
            check=False,
        )
    if not 0 <= done.returncode <= _MOST_CONFLICTS:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise ConfigError(f"git merge-file failed ({why}); join the texts by hand: evo kernels add")
    return done.stdout.decode("utf-8"), done.returncode > 0


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
