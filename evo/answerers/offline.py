"""Answers without a language model: it turns knobs of the layer that a question is about, and says just that."""

import random
from collections.abc import Mapping, Sequence

from evo.answerers.answerer import Reply, Request
from fitness.manifest import Knob, read_manifest, with_knobs, without_knob_values


class OfflineAnswerer:
    """The same request gets the same reply, whatever was asked before: its choices follow from the numbers alone."""

    def __init__(self, *, rng_seed: int) -> None:
        self._rng_seed = rng_seed

    @property
    def description(self) -> str:
        """What it is, and what that means for a comparison of styles."""
        return "offline: turns knobs, no language model; the phrasing of a question has no effect by construction"

    def answer(self, request: Request) -> Reply:
        """A reply that turns one or two knobs, or mixes those of two parents.

        Raises CandidateFault for a parent without a readable manifest.
        """
        rng = random.Random(f"{self._rng_seed}:{request.number}:{request.attempt}")  # noqa: S311  # no secret
        parent = request.parent_sources[0]
        mixed = _mixed_knobs(request.parent_sources, rng)
        if mixed:
            text = _reply("take some knobs from the second kernel", parent, mixed)
        else:
            text = _turned(parent, request.layer, rng)
            if len(request.parent_sources) > 1:
                text = f"The two kernels cannot be mixed by their knobs; the first alone is changed.\n{text}"
        return Reply(text=text, model="offline")


def _mixed_knobs(sources: Sequence[str], rng: random.Random) -> dict[str, int]:
    """Values from the second parent for some of the knobs in which it differs.

    Empty where no mixture is new: a single parent, parents that differ in more than knobs, or in one knob only.
    """
    if len(sources) < 2 or without_knob_values(sources[0]) != without_knob_values(sources[1]):
        return {}
    first, second = (read_manifest(source).knobs for source in sources)
    differing = {theirs.name: theirs.value for ours, theirs in zip(first, second, strict=True) if ours != theirs}
    if len(differing) < 2:
        return {}
    taken = rng.sample(list(differing), rng.randrange(1, len(differing)))
    return {name: differing[name] for name in taken}


def _turned(parent: str, layer: str, rng: random.Random) -> str:
    """The reply that turns one or two knobs of the layer, or of any where that has none."""
    turnable = [knob for knob in read_manifest(parent).knobs if len(knob.choices) > 1]
    if not turnable:
        return "Hypothesis: none; the kernel has no knob to turn, and nobody here writes code.\n"
    in_layer = [knob for knob in turnable if knob.layer == layer]
    chosen = rng.sample(in_layer or turnable, min(rng.choice((1, 2)), len(in_layer or turnable)))
    values = {knob.name: rng.choice(_other_choices(knob)) for knob in chosen}
    why = f"turn knobs of the layer {layer}" if in_layer else f"the layer {layer} has no knob, so turn any"
    return _reply(why, parent, values)


def _other_choices(knob: Knob) -> list[int]:
    return [choice for choice in knob.choices if choice != knob.value]


def _reply(why: str, parent: str, values: Mapping[str, int]) -> str:
    change = ", ".join(f"{name} = {value}" for name, value in values.items())
    notes = f"Hypothesis: none; {why} and measure\nChange: {change}\nExpect: unknown, a random choice\n"
    return "\n".join((notes, *_blocks(parent, with_knobs(parent, values))))


def _blocks(parent: str, child: str) -> list[str]:
    """The edit blocks that make the child: each changed line, with as many before it as its place needs."""
    old, new = parent.split("\n"), child.split("\n")
    return [
        _block(old, new, position)
        for position, (before, after) in enumerate(zip(old, new, strict=True))
        if before != after
    ]


def _block(old: Sequence[str], new: Sequence[str], position: int) -> str:
    text = "\n".join(("", *old, ""))
    start = position
    while start and text.count("\n".join(("", *old[start : position + 1], ""))) > 1:
        start -= 1
    context = old[start:position]
    lines = ("<<<<<<< SEARCH", *context, old[position], "=======", *context, new[position], ">>>>>>> REPLACE")
    return "\n".join((*lines, ""))
