"""Runs that are told twice: a copy counts as another sample wherever runs or their shots are pooled."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from evo.attempt_events import recorded_attempts
from evo.config import BackendKind
from evo.run_settings import recorded_settings
from evo.settings import ConfigError
from population.archive_reader import read_archive
from population.atomic_file import strict_json
from population.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What a run was set to, and checksums of what it asked and measured.

    An evaluation holds times, so two runs on a device agree in none; two that search a table may agree in all of them.
    """

    settings: Mapping[str, Any]
    asked: frozenset[bytes]
    evaluations: frozenset[bytes]

    def begins(self, other: "_Content") -> bool:
        """Whether the other is this run, perhaps gone on with. What has measured nothing is told of elsewhere."""
        parts = self.asked <= other.asked and self.evaluations <= other.evaluations
        return bool(self.evaluations) and parts and self.settings == other.settings


def require_different(runs: Mapping[str, RunFolder]) -> None:
    """Raise ConfigError, naming all of them, where two of these runs are one: set alike, with the same attempts and, to
    the last digit, the same evaluations, as far as the shorter one goes.
    """
    contents = {name: _content(folder) for name, folder in runs.items()}
    alike = [
        (one, other)
        for one, other in combinations(contents, 2)
        if contents[one].begins(contents[other]) or contents[other].begins(contents[one])
    ]
    if alike:
        first, *others = (f"{one} and {other}" for one, other in alike)
        further = f", and so are {', '.join(others)}" if others else ""
        why = _of_a_table(contents[alike[0][0]].settings)
        raise ConfigError(
            f"compare: {first} are one run, told twice{further}: equal settings, equal attempts and, to the last "
            f"digit, equal evaluations; leave one of them out, by naming the others{why}"
        )


def _of_a_table(settings: Mapping[str, Any]) -> str:
    """Why two runs may be alike that nobody copied; "" where times were measured."""
    if settings.get("backend") != BackendKind.recorded.value:
        return ""
    drawn = f"rng_seed={settings.get('rng_seed')}"
    return f". A search in a table comes to the same whenever it is made with {drawn}: give each run its own rng_seed"


def _content(folder: RunFolder) -> _Content:
    with read_archive(folder) as archive:
        return _Content(
            settings=recorded_settings(archive),
            asked=frozenset(_checksum(strict_json(each.to_json())) for each in recorded_attempts(archive)),
            evaluations=frozenset(_checksum(f"{each.individual_id} {each.record}") for each in archive.evaluations()),
        )


def _checksum(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()
