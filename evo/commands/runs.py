"""`evo runs`: the runs below a folder, one a line."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from evo.console import say
from evo.run_list import RunRow, list_runs
from evo.run_options import RUNS
from evo.settings import ConfigError
from population.atomic_file import strict_json

_HEAD = (
    "run", "state", "best", "× seed", "evaluations", "generation", "age", "USD", "backend", "suite", "style",
    "answerer", "note",
)  # fmt: skip
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def runs(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0. Raises ConfigError for a bad command line."""
    names = [word for word in arguments if word != "--json"]
    if len(names) > 1 or any(name.startswith("-") for name in names):
        raise ConfigError(f"runs: {' '.join(names)}: expected evo runs [FOLDER] [--json]")
    root = Path(names[0] if names else RUNS)
    if not root.is_dir():
        raise ConfigError(f"runs: {root} is no folder; expected one with runs in it or below it")
    rows = list_runs(root, now=time.time())
    if "--json" in arguments:
        lines = [strict_json([asdict(row) for row in rows], sort_keys=False, indent=2)]
    elif rows:
        lines = _aligned([_HEAD, *map(_cells, rows)])
    else:
        lines = [f"no run in {root} or below it"]
    for line in lines:
        say(console, line)
    return 0


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        _one_line(row.name),
        str(row.state),
        _figure(row.best_geomean, ".4f"),
        _figure(row.gain, ".2f"),
        _figure(row.evaluations, "d"),
        _figure(row.generation, "d"),
        "-" if row.age_s is None else _age(row.age_s),
        _figure(row.cost_usd, ".2f"),
        _backend(row),
        row.suite or "-",
        row.style or "-",
        row.answerer or "-",
        _one_line(row.note),
    )


def _backend(row: RunRow) -> str:
    """What measured; a table and another run's trace are told apart from a device."""
    return row.backend or "-" if row.replay_of is None else f"replay of {_one_line(row.replay_of)}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need; a line is never broken, so that it can be searched for."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _figure(number: float | None, form: str) -> str:
    return "-" if number is None else format(number, form)


def _age(seconds: float) -> str:
    """In the largest unit that it fills."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size:.0f} {unit}"


def _one_line(text: str) -> str:
    """The text without what would break the line or steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
