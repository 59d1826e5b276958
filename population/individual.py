"""An individual: one kernel in the population, where it came from, and its fitness."""

from dataclasses import dataclass, field

from deap import base


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
    birth: int  # the running number of the mutation that made it; seeds count downwards from -1
    generation: int
    operator: str  # seed | mutate | crossover
    parent_ids: tuple[str, ...] = ()
    question_id: str | None = None
    fitness: KernelFitness = field(default_factory=KernelFitness, compare=False, repr=False)
