"""The search itself: select parents, ask about them, judge the children, keep the best, remember everything."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from deap import base, tools

from evo.selection import viable
from evo.stop import StopSearch
from population.individual import Individual


@dataclass(kw_only=True)
class State:
    """What a search carries from one generation to the next; a checkpoint holds exactly this."""

    generation: int = 0
    population: list[Individual] = field(default_factory=list)
    hall_of_fame: tools.HallOfFame
    logbook: tools.Logbook = field(default_factory=tools.Logbook)
    next_birth: int = 0  # the number of the next mutation
    barren_generations: int = 0  # in a row, without a single new candidate


def evolve(state: State, toolbox: base.Toolbox) -> StopSearch:
    """Run until a stop condition holds, and return it.

    The toolbox knows how each step is done: `stop`, `sow`, `select_parents`, `vary`, `evaluate`, `next_birth`,
    `select_survivors`, `record`, `checkpoint`. Any of them may end the search in mid-generation by raising StopSearch;
    that generation is then made again on resume, from what was already paid for.
    """
    try:
        if not state.population:
            adopt(state, toolbox, toolbox.sow())
        while True:
            toolbox.stop(state)
            parents = toolbox.select_parents(state.population)
            offspring = toolbox.vary(parents, first_birth=state.next_birth, generation=state.generation + 1)
            toolbox.evaluate(offspring)
            state.generation += 1
            state.next_birth = toolbox.next_birth(state)
            state.barren_generations = 0 if offspring else state.barren_generations + 1
            adopt(state, toolbox, offspring)
    except StopSearch as stop:
        return stop


def adopt(state: State, toolbox: base.Toolbox, newcomers: Sequence[Individual]) -> None:
    """Let judged newcomers compete with the population, then write down how things stand."""
    state.population = toolbox.select_survivors([*state.population, *newcomers])
    state.hall_of_fame.update(viable(newcomers))
    toolbox.record(state, newcomers)
    toolbox.checkpoint(state)
