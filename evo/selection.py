"""Who becomes a parent and who survives, with DEAP's operators. They draw from Python's global generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deap import base, tools

from population.individual import Individual


class Selection(Protocol):
    """A way to choose among judged individuals."""

    def parents(self, population: Sequence[Individual], count: int) -> list[Individual]:
        """`count` parents; the same one may be chosen more than once."""

    def survivors(self, pool: Sequence[Individual], count: int) -> list[Individual]:
        """At most `count` individuals, each once, in the pool's order of merit."""


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """Parents by tournament on the geometric mean; the best survive."""

    size: int

    def parents(self, population: Sequence[Individual], count: int) -> list[Individual]:
        """See Selection."""
        return list(tools.selTournament(population, count, tournsize=self.size))

    def survivors(self, pool: Sequence[Individual], count: int) -> list[Individual]:
        """See Selection."""
        return list(tools.selBest(viable(pool), count))


class ScenarioFitness(base.Fitness):  # type: ignore[misc]  # DEAP publishes no types
    """The speedups per scenario as objectives, as many weights as there are of them."""

    weights: tuple[float, ...] = (1.0,)

    def __init__(self, speedups: Sequence[float]) -> None:
        self.weights = (1.0,) * len(speedups)
        super().__init__(speedups)


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """Stands for an individual while lexicase looks at its scenarios one by one."""

    individual: Individual
    fitness: ScenarioFitness = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Lexicase:
    """DEAP's automatic epsilon-lexicase over the scenarios' speedups, so that specialists live on.

    `speedups` gives an individual's speedups by its id, in the same order of scenarios for all. The `elites` best by
    geometric mean survive in any case. La Cava, Spector, Danai: "Epsilon-Lexicase Selection for Regression", GECCO
    2016.
    """

    speedups: Callable[[str], Mapping[str, float]]
    elites: int

    def parents(self, population: Sequence[Individual], count: int) -> list[Individual]:
        """See Selection."""
        chosen = tools.selAutomaticEpsilonLexicase(self._proxies(population), count)
        return [proxy.individual for proxy in chosen]

    def survivors(self, pool: Sequence[Individual], count: int) -> list[Individual]:
        """See Selection."""
        rest = list(tools.selBest(viable(pool), len(pool)))
        chosen, rest = rest[: min(self.elites, count)], rest[min(self.elites, count) :]
        while rest and len(chosen) < count:
            winner = self.parents(rest, 1)[0]
            chosen.append(winner)
            rest.remove(winner)
        return chosen

    def _proxies(self, individuals: Sequence[Individual]) -> list[Proxy]:
        return [
            Proxy(individual=individual, fitness=ScenarioFitness(list(self.speedups(individual.id).values())))
            for individual in individuals
        ]


def viable(pool: Sequence[Individual]) -> list[Individual]:
    """Those with a real speedup: a failure holds 0.0 and never survives, even where nothing else is there."""
    return [individual for individual in pool if individual.fitness.values[0] > 0.0]
