"""Slots: the few places in a question's text that the parent's measurement fills in."""

import re
from collections.abc import Mapping
from types import MappingProxyType

SLOTS: Mapping[str, str] = MappingProxyType(
    {
        "worst_scenario": "the name of the scenario with the least speedup",
        "worst_speedup": "the speedup there against the baseline, as in 0.93",
        "best_scenario": "the name of the scenario with the greatest speedup",
        "roof_share": "the share of the roof reached in the worst scenario, as in 73 %",
        "advisory": "one warning that the compiler gave for the kernel",
        "registers": "registers a thread, in the build that uses most, as in 168",
        "spills": "bytes spilled a thread, as in 48; to be left out where there are none",
        "gain": "the last change's speed over its parent's, as in 1.31",
        "failure": "why the last candidate failed, in one line",
    }
)
MAX_VALUE_CHARACTERS = 200  # a compiler's log must not drown the question

_SLOT = re.compile(r"\{([a-z_]+)\}")


def slots_in(text: str) -> frozenset[str]:
    """The names of all slots in the text, known or not."""
    return frozenset(_SLOT.findall(text))


def without_slots(text: str) -> str:
    """The text with every slot taken out: what its author wrote."""
    return _SLOT.sub("", text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with its slots filled, each on one line and cut to MAX_VALUE_CHARACTERS.

    One pass, and never `str.format`: values come from compilers and models, and may hold braces of their own.
    Raises ValueError for a slot without a value, or with an empty one.
    """
    return _SLOT.sub(lambda slot: _value(slot[1], values), text)


def _value(name: str, values: Mapping[str, str]) -> str:
    value = " ".join(values.get(name, "").split()).rstrip(".")
    if not value:
        given = ", ".join(sorted(values)) or "none"
        raise ValueError(f"slot {{{name}}} has no value (given: {given}); draw questions whose slots can be filled")
    return value if len(value) <= MAX_VALUE_CHARACTERS else value[: MAX_VALUE_CHARACTERS - 1].rstrip() + "…"
