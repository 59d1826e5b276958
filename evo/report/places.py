"""Where a family tree has its kernels, from left to right."""

from collections.abc import Iterable

from population.individual import BY_HAND
from population.records import Birth

_BETWEEN = 0.5  # two numbers of questions


def places(births: Iterable[Birth]) -> dict[str, float]:
    """The number of the question that made each; what came by hand lies before the questions of its generation."""
    listed = list(births)
    made = [birth for birth in listed if birth.operator != BY_HAND]
    found: dict[str, float] = {birth.id: birth.birth for birth in made}
    for birth in listed:
        if birth.operator == BY_HAND:
            later = [each.birth for each in made if each.generation >= birth.generation]
            last = max((each.birth for each in made), default=-1)
            found[birth.id] = min(later, default=last + 1) - _BETWEEN
    return found
