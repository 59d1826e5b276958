"""Which group a run belongs to: the value of one configuration key, whichever way its user names it."""

import difflib
import json
from collections.abc import Sequence
from typing import Any

from evo.compare.runs import Run
from evo.settings import ConfigError

_OF_A_GROUP = ("kind", "name")  # by=style means style.kind, by=suite the suite's name
_WHERE_KEYS_ARE = "`evo evolve --cfg job` lists them"
_NO_DIFFERENCE = ("name", "runs", "resume", "hydra")  # differ from run to run and change nothing


def grouped(runs: Sequence[Run], by: str) -> dict[str, list[Run]]:
    """The runs by their value of a key; numbers in their order, else words in theirs.

    Raises ConfigError for a key that no run has, and where all runs are alike in it.
    """
    key = _key(runs, by)
    values: dict[str, Any] = {_shown(run.settings.get(key)): run.settings.get(key) for run in runs}
    if len(values) < 2:
        differing = [name for name in differing_keys(runs, fixed=False) if name != key]
        hint = f"these runs differ in {', '.join(differing)}" if differing else "these runs differ in nothing"
        raise ConfigError(f"by={by}: one group only, {key}={next(iter(values))}; {hint}")
    groups = {label: [run for run in runs if _shown(run.settings.get(key)) == label] for label in values}
    return {label: groups[label] for label in sorted(groups, key=lambda label: _rank(values[label], label))}


def differing_keys(runs: Sequence[Run], *, fixed: bool) -> list[str]:
    """The keys in which the runs are not all alike; `fixed` leaves out what may change within a run."""
    keys = sorted({key for run in runs for key in (run.fixed if fixed else run.settings)})
    return [
        key
        for key in keys
        if key.split(".")[0] not in _NO_DIFFERENCE and len({_shown(run.settings.get(key)) for run in runs}) > 1
    ]


def compares(runs: Sequence[Run], by: str, what: str) -> bool:
    """Whether `by` names this part of the configuration."""
    return _key(runs, by).split(".")[0] == what


def _key(runs: Sequence[Run], by: str) -> str:
    known = {key for run in runs for key in run.settings}
    for key in (by, *(f"{by}.{name}" for name in _OF_A_GROUP)):
        if key in known:
            return key
    names = sorted(known | {key.removesuffix(".kind") for key in known})
    near = difflib.get_close_matches(by, names, n=1, cutoff=0.5)
    raise ConfigError(f"by={by}: no run has this key; " + (f"did you mean {near[0]}?" if near else _WHERE_KEYS_ARE))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _rank(value: object, label: str) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), label
    return 1, 0.0, label
