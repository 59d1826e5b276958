"""Checkpoints: the state of a search between two generations, as JSON that is checked when it is read. Never pickle."""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from population.atomic_file import parse_json, strict_json, write_atomically
from population.faults import CheckpointError
from population.individual import Individual, set_fitness

SCHEMA = 1
_FILE_NAME = re.compile(r"gen-(\d{4,})\.json")


class RandomSource(Protocol):
    """A random.Random, or the module `random` itself, whose global stream DEAP's operators use."""

    def getstate(self) -> tuple[Any, ...]:
        """Where the stream stands, in the form that `setstate` takes."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """An individual of the population or the hall of fame; the archive holds the rest of it."""

    id: str
    fitness: float | None  # None where it is not evaluated

    @classmethod
    def of(cls, individual: Individual) -> "Member":
        """The individual's id and fitness."""
        return cls(id=individual.id, fitness=individual.fitness.values[0] if individual.fitness.valid else None)

    def restore_fitness(self, individual: Individual) -> None:
        """Gives the individual this fitness; an empty one stays empty."""
        if self.fitness is not None:
            set_fitness(individual, self.fitness)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a search needs to go on as if it had never stopped, next to the archive. Plain JSON types inside."""

    generation: int
    population: tuple[Member, ...]
    hall_of_fame: tuple[Member, ...]
    logbook: tuple[Mapping[str, Any], ...]
    rng_states: Mapping[str, Any]  # by name, each from `rng_state_to_json`
    sampler: Mapping[str, Any]  # the question sampler's own record
    counters: Mapping[str, int]  # next birth, evaluations and the like
    settings_fingerprint: str

    def counter(self, name: str) -> int:
        """The counter of that name. Raises CheckpointError where there is none."""
        if name not in self.counters:
            raise CheckpointError(f"the checkpoint lacks the counter {name}; use the version that wrote it")
        return self.counters[name]

    def rng_state(self, name: str) -> tuple[Any, ...]:
        """What `setstate` of the generator of that name takes. Raises CheckpointError where there is none."""
        return rng_state_from_json(self.rng_states.get(name))


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The newest checkpoint that is whole, and a sentence for each file that was passed over: tell the user."""

    checkpoint: Checkpoint
    path: Path
    skipped: tuple[str, ...]


def save_checkpoint(
    folder: Path, checkpoint: Checkpoint, *, keep: int, rename: Callable[[Path, Path], object] = Path.replace
) -> Path:
    """The path of the checkpoint, safe on the disk; of the older ones the newest keep − 1 stay.

    A crash at any moment leaves the former ones as they were. `rename` puts the finished file in place.
    Raises CheckpointError where it cannot be written or holds what JSON cannot, ValueError for keep < 1.
    """
    if keep < 1:
        raise ValueError(f"checkpoints to keep: {keep}; expected at least 1")
    path = folder / f"gen-{checkpoint.generation:04d}.json"
    record = {"schema": SCHEMA} | vars(checkpoint)
    for name in ("population", "hall_of_fame"):
        record[name] = [vars(member) for member in record[name]]
    try:
        text = strict_json(record | {"checksum": _checksum(record)})
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: not written: {error}; expected plain finite JSON values") from error
    try:
        folder.mkdir(exist_ok=True)
        write_atomically(path, text, rename=rename)
        _tidy(folder, checkpoint.generation, keep)
    except OSError as error:
        raise CheckpointError(f"{path}: {error}; make room or rights there, then resume the run") from error
    return path


def load_newest(folder: Path) -> Loaded | None:
    """The newest whole checkpoint in `folder`, or None where there never was one.

    A newer file that is cut short, empty or altered is skipped and named in `skipped`, as is a writing that never
    ended. Raises CheckpointError where all are damaged, where one cannot be read, and where one is of another schema
    or holds other fields under a true checksum: going back behind it would lose work without need.
    """
    skipped = [f"{path}: left by a writing that was cut short" for path in _unfinished(folder)]
    paths = _checkpoints(folder)
    for _, path in sorted(paths.items(), reverse=True):
        try:
            return Loaded(checkpoint=_load(path), path=path, skipped=tuple(skipped))
        except _Damaged as damage:
            skipped.append(f"{path}: {damage}")
    if paths:
        raise CheckpointError(
            "no whole checkpoint is left; restore a copy of one, or move them all away to have the search made again "
            "from its archive. " + "; ".join(skipped)
        )
    return None


def newest_generation(folder: Path) -> int | None:
    """The generation of the newest checkpoint by its name, whole or not; None where there is none."""
    return max(_checkpoints(folder), default=None)


def rng_state_to_json(rng: RandomSource) -> list[Any]:
    """Where the stream stands, in JSON types."""
    version, words, gauss_next = rng.getstate()
    return [version, list(words), gauss_next]


def rng_state_from_json(state: object) -> tuple[Any, ...]:
    """What `setstate` takes to go on where `rng_state_to_json` was called. Raises CheckpointError for other states."""
    try:
        if not isinstance(state, list) or len(state) != 3:
            raise ValueError(f"{type(state).__name__} came")
        restored = (state[0], tuple(state[1]), state[2])
        random.Random().setstate(restored)  # noqa: S311  # only to see whether Python takes it
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"random state: {error}; expected [version, [words], gauss_next]") from error
    return restored


class _Damaged(Exception):
    """The file is not what was written."""


def _load(path: Path) -> Checkpoint:
    try:
        record = parse_json(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error}; checkpoints must be readable") from error
    except ValueError as error:  # UnicodeDecodeError is one too
        raise _Damaged(f"cut short or damaged: {error}") from error
    if not isinstance(record, dict):
        raise _Damaged("damaged: expected a JSON object")
    if record.get("schema", SCHEMA) != SCHEMA:
        remedy = "use the version that wrote it, or start a new run"
        raise CheckpointError(f"{path}: schema {record['schema']!r}, this evo reads {SCHEMA}; {remedy}")
    if record.pop("checksum", None) != _checksum(record):
        raise _Damaged("altered or damaged: its checksum does not match")
    return _from_record(record, path)


def _from_record(record: dict[str, Any], path: Path) -> Checkpoint:
    expected = {"schema", *(each.name for each in fields(Checkpoint))}
    for kind, names in (("unknown", set(record) - expected), ("missing", expected - set(record))):
        if names:
            raise CheckpointError(f"{path}: {kind} fields: {', '.join(sorted(names))}; use the version that wrote it")
    try:
        members = {name: tuple(Member(**each) for each in record[name]) for name in ("population", "hall_of_fame")}
        plain = {name: value for name, value in record.items() if name != "schema"}
        made = Checkpoint(**{**plain, **members, "logbook": tuple(record["logbook"])})
        _require_types(made)
        return made
    except TypeError as error:
        raise CheckpointError(f"{path}: {error}; use the version that wrote it") from error


def _require_types(made: Checkpoint) -> None:
    """Raise TypeError for a part that no version of this schema wrote; a program may have set the checksum anew."""
    for member in (*made.population, *made.hall_of_fame):
        if not isinstance(member.id, str) or not isinstance(member.fitness, int | float | None):
            raise TypeError(f"a member with id {member.id!r} and fitness {member.fitness!r}")
    for name, parts in (("logbook", made.logbook), ("rng_states", [made.rng_states]), ("counters", [made.counters])):
        if not all(isinstance(part, dict) for part in parts):
            raise TypeError(f"{name} holds something else than a JSON object")
    if not all(isinstance(count, int) for count in made.counters.values()):
        raise TypeError(f"counters that are no whole numbers: {made.counters}")


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(strict_json(record).encode("ascii")).hexdigest()


def _checkpoints(folder: Path) -> dict[int, Path]:
    """By generation; other files in the folder are nobody's business."""
    matches = ((_FILE_NAME.fullmatch(path.name), path) for path in folder.glob("gen-*.json"))
    return {int(match[1]): path for match, path in matches if match}


def _unfinished(folder: Path) -> Iterable[Path]:
    return sorted(folder.glob("gen-*.tmp"))


def _tidy(folder: Path, newest: int, keep: int) -> None:
    """Only what is older than the one just written goes: newer files are left for a person to look at."""
    older = sorted((generation, path) for generation, path in _checkpoints(folder).items() if generation < newest)
    for _, path in older[: max(0, len(older) - (keep - 1))]:
        path.unlink(missing_ok=True)
    for path in _unfinished(folder):
        path.unlink(missing_ok=True)
