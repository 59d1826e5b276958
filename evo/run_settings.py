"""Which settings make a run the run that it is: written down at its start, compared at every resume."""

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from evo.choices import Settled
from evo.config import AnswererKind, Config
from evo.settings import ConfigError
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord

SETTINGS_EVENT = "settings"
_SETTINGS_KEY = "run"
_SHOWN_CHARACTERS = 80  # of a value that differs: a suite's scenarios fill pages
FREE_SETTINGS = (  # may change from one part of a run to the next; any other change makes another experiment
    "name", "runs", "resume", "audit", "logger", "stop", "backend", "pool", "baseline", "suite",
    "evolution.keep_checkpoints", "answerer.concurrency", "answerer.timeout_s", "answerer.max_retries",
    "answerer.api_key_env", "answerer.base_url",
)  # fmt: skip
# Options that runs began without: at these values they are left out, so that such a run can be gone on with.
_LATER: Mapping[str, Any] = MappingProxyType(
    {"judge.precision": None, "judge.race": False, "questions.all_styles": False, "evolution.kind": "generational"}
)


def fixed_settings(config: Config, settled: Settled) -> dict[str, Any]:
    """The settings that must stay, flat, as JSON types; what was left to us stands in as it was settled."""
    flat = flatten_settings(config)
    kept = {key: value for key, value in flat.items() if not _is_free(key) and not _is_as_before(key, value, config)}
    scenarios = [scenario.to_json() for scenario in (*settled.suite.scenarios, *settled.suite.edges)]
    return kept | {
        "backend": settled.backend.value,
        "backend.threads": config.backend.threads,  # candidate and baseline need not gain alike from more of them
        "device": settled.device,
        "baseline": settled.baseline.value,
        "suite": settled.suite.name,
        "suite.scenarios": scenarios,
    }


def flatten_settings(config: Config) -> dict[str, Any]:
    """All settings by their dotted keys, as JSON types."""
    return flatten(asdict(config))


def flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of settings, or of anything else, by dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in node.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: _plain(value)}
    return flat


def recorded_settings(archive: ArchiveReader) -> dict[str, Any]:
    """The settings that a run began with; empty where it has not begun."""
    event = archive.event(SETTINGS_EVENT, _SETTINGS_KEY)
    return dict(parse_json(event.record)) if event else {}


def as_begun(archive: ArchiveReader, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings; without a model's name where a run by files began without, for each reply there tells its own."""
    before = recorded_settings(archive)
    unnamed = before.get("answerer.kind") == AnswererKind.mailbox.value and before.get("answerer.model") is None
    return {**settings, "answerer.model": None} if unnamed else dict(settings)


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Equal for equal settings; stands in every checkpoint."""
    return sha256(strict_json(settings).encode()).hexdigest()


def require_same_settings(archive: Archive, settings: Mapping[str, Any]) -> None:
    """Write the settings down at a run's start; later raise ConfigError that says which of them differ."""
    before = recorded_settings(archive)
    if not before:
        archive.record_event(EventRecord(kind=SETTINGS_EVENT, key=_SETTINGS_KEY, record=strict_json(settings)))
        return
    settings = as_begun(archive, settings)
    differing = [
        f"{key} was {_shown(before.get(key))}, now {_shown(settings.get(key))}"
        for key in sorted({*before, *settings})
        if before.get(key) != settings.get(key)
    ]
    if differing:
        raise ConfigError(f"resume: this run began with other settings: {'; '.join(differing)}; start a new run")


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value.value if isinstance(value, Enum) else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _is_as_before(key: str, value: object, config: Config) -> bool:
    if key.startswith("single_shot."):
        return config.single_shot.questions is None
    return key in _LATER and value == _LATER[key]


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE_SETTINGS)
