"""A full grid over some of a kernel's knobs, and the seed whose manifest offers just that grid to a search."""

import itertools
import re
from collections.abc import Mapping, Sequence

from fitness.manifest import read_manifest, with_knobs

Grid = Mapping[str, tuple[int, ...]]


def read_grid(words: Sequence[str]) -> Grid:
    """From words such as `BLOCK_N=32,64`. Raises ValueError for others, and for a knob or a value named twice."""
    grid: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        choices = tuple(int(value) for value in values.split(",")) if equals else ()
        if not choices or name in grid or len(set(choices)) != len(choices):
            raise ValueError(f"{word}: expected a knob of its own with distinct values, as in BLOCK_N=32,64")
        grid[name] = choices
    return grid


def narrowed(source: str, grid: Grid) -> str:
    """The source with the grid's knobs offering the grid's values, and every other knob the one that it has.

    A value in force that the grid lacks gives way to the grid's first. Raises ValueError for a knob or a value that
    the source does not offer.
    """
    knobs = {knob.name: knob for knob in read_manifest(source).knobs}
    for name, choices in grid.items():
        if name not in knobs or not set(choices) <= set(knobs[name].choices):
            offered = {knob.name: list(knob.choices) for knob in knobs.values()}
            raise ValueError(f"{name}={list(choices)}: the kernel offers {offered}")
    wanted = {name: grid.get(name, (knob.value,)) for name, knob in knobs.items()}
    in_force = {name: knob.value for name, knob in knobs.items()}
    values = {name: in_force[name] if in_force[name] in offered else offered[0] for name, offered in wanted.items()}
    text = with_knobs(source, values)
    for name, offered in wanted.items():
        text = _with_choices(text, name, offered)
    found = {knob.name: (knob.value, knob.choices) for knob in read_manifest(text).knobs}
    if found != {name: (values[name], offered) for name, offered in wanted.items()}:
        raise ValueError("the manifest's knobs are not written as NAME = { value = …, choices = […], … }, one a line")
    return text


def variants(seed: str) -> list[str]:
    """Every kernel that the knobs of a seed can make, the seed's own values among them, in the knobs' order."""
    knobs = read_manifest(seed).knobs
    rows = itertools.product(*(knob.choices for knob in knobs))
    return [with_knobs(seed, dict(zip((knob.name for knob in knobs), row, strict=True))) for row in rows]


def _with_choices(source: str, name: str, choices: Sequence[int]) -> str:
    line = re.compile(rf"^(\s*{re.escape(name)}\s*=\s*\{{[^}}\n]*?choices\s*=\s*)\[[^\]\n]*\]", re.MULTILINE)
    return line.sub(lambda match: f"{match[1]}[{', '.join(map(str, choices))}]", source, count=1)
