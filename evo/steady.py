"""The search without generations to wait for: whatever is judged competes at once, and a new question is asked."""

from collections.abc import Sequence

from deap import base

from evo.loop import State, adopt
from evo.selection import viable
from evo.stop import StopSearch
from population.individual import Individual


def evolve_steadily(state: State, toolbox: base.Toolbox, lambda_: int) -> StopSearch:
    """Run until a stop condition holds, and return it.

    The toolbox has the steps of `evo.loop.evolve`, and instead of `vary`, `evaluate` and `next_birth` these: `take_up`
    what an earlier part of the run left under way, `has_room`, `ask`, `hear` what is done, and `lay_down` what is under
    way at the end. A generation is as many settled questions as the other loop asks in one, `lambda_`.
    """
    settled: list[Individual | None] = []
    try:
        if not state.population:
            adopt(state, toolbox, toolbox.sow())
        toolbox.take_up(state)
        while True:
            toolbox.stop(state)
            while toolbox.has_room():
                [parents] = toolbox.select_parents(state.population, 1)
                toolbox.ask(parents, state)
            newcomers = toolbox.hear(state)
            compete(state, toolbox, newcomers)
            settled += newcomers
            if len(settled) == lambda_:
                end_generation(state, toolbox, settled)
                settled = []
    except StopSearch as stop:
        if settled and stop.exit_code is None:  # an interruption may have come in the middle of a step
            end_generation(state, toolbox, settled)
        return stop
    finally:
        toolbox.lay_down()


def compete(state: State, toolbox: base.Toolbox, newcomers: Sequence[Individual | None]) -> None:
    """Let judged newcomers compete with the population; None stands for a question that led to none."""
    children = [newcomer for newcomer in newcomers if newcomer is not None]
    if not children:
        return
    state.population = toolbox.select_survivors([*state.population, *children])
    state.hall_of_fame.update(viable(children))


def end_generation(state: State, toolbox: base.Toolbox, settled: Sequence[Individual | None]) -> None:
    """Write down how things stand."""
    children = [newcomer for newcomer in settled if newcomer is not None]
    state.generation += 1
    state.barren_generations = 0 if children else state.barren_generations + 1
    toolbox.record(state, children)
    toolbox.checkpoint(state)
