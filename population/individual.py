"""An individual: one kernel in the population, where it came from, and its fitness."""

import hashlib
import math
import re
from dataclasses import dataclass, field

from deap import base

# A backslash that blanks follow is no line continuation to every compiler, so those blanks stay.
_TRAILING_BLANKS = re.compile(r"(?<![\\ \t\r])[ \t\r]+$", re.MULTILINE)
_LINE_END = re.compile(r"\r+(?=\n|\Z)")

SEED, BY_HAND = "seed", "hand"  # operators of kernels that no question made: a run began with it, a person put it in


class KernelFitness(base.Fitness):  # type: ignore[misc]  # DEAP publishes no types
    """DEAP's fitness with one objective: the geometric mean speedup, to be maximised.

    Always finite: a candidate that failed holds 0.0, below any real speedup (in DEAP NaN beats every number, and an
    empty fitness means "not yet evaluated").
    """

    weights = (1.0,)


@dataclass(frozen=True, kw_only=True)
class Individual:
    """A kernel and its ancestry. `id` is made of the source's hash, so equal text is the same individual."""

    id: str
    source: str
    birth: int  # the running number of the mutation that made it; seeds count downwards from -1, then what came by hand
    generation: int
    operator: str  # seed | mutate | crossover | hand
    parent_ids: tuple[str, ...] = ()
    question_id: str | None = None
    fitness: KernelFitness = field(default_factory=KernelFitness, compare=False, repr=False)

    @classmethod
    def from_source(
        cls,
        source: str,
        *,
        birth: int,
        generation: int,
        operator: str,
        parent_ids: tuple[str, ...] = (),
        question_id: str | None = None,
    ) -> "Individual":
        """A new individual with the id of `source`, the normalised source, and an empty fitness."""
        return cls(
            id=individual_id(source),
            source=normalise(source),
            birth=birth,
            generation=generation,
            operator=operator,
            parent_ids=parent_ids,
            question_id=question_id,
        )


def normalise(source: str) -> str:
    """The source with LF line ends, no blanks at the ends of lines, and exactly one newline at the end.

    Nothing else changes, so two kernels that a compiler could tell apart stay apart (a raw string literal alone could
    tell trailing blanks). Idempotent.
    """
    return _TRAILING_BLANKS.sub("", _LINE_END.sub("", source)).rstrip("\n") + "\n"


def individual_id(source: str) -> str:
    """ "k" and the first 12 hex digits of the SHA-256 of the normalised source.

    Raises UnicodeEncodeError where the source holds a lone surrogate.
    """
    return "k" + hashlib.sha256(normalise(source).encode("utf-8")).hexdigest()[:12]


def similar(one: Individual, other: Individual) -> bool:
    """Whether both are the same kernel: what DEAP's HallOfFame takes as `similar`."""
    return one.id == other.id


def set_fitness(individual: Individual, value: float | None) -> None:
    """Writes the geometric mean speedup into the individual's DEAP fitness, 0.0 for a failure (None).

    Raises ValueError for what is no finite number of at least 0: NaN would win every DEAP tournament.
    """
    number = 0.0 if value is None else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError(f"fitness of {individual.id}: {value!r}; expected a finite speedup of at least 0, or None")
    individual.fitness.values = (float(number),)
