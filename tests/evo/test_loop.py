"""The loop, with steps that are plain functions on numbers."""

from collections.abc import Sequence

import pytest
from deap import base, tools

from evo.loop import State, evolve
from evo.stop import StopSearch
from population.individual import Individual


def individual(name: str, geomean: float, birth: int) -> Individual:
    made = Individual(id=name, source=name, birth=birth, generation=0, operator="mutate")
    made.fitness.values = (geomean,)
    return made


class Steps:
    """A search in which the n-th child is worth 1 + n / 10."""

    def __init__(self, generations: int, lambda_: int = 2) -> None:
        self.generations, self.lambda_ = generations, lambda_
        self.checkpoints: list[tuple[int, list[str]]] = []
        self.evaluated: list[str] = []

    def toolbox(self) -> base.Toolbox:
        toolbox = base.Toolbox()
        steps = ("stop", "sow", "select_parents", "vary", "evaluate", "next_birth", "select_survivors",
                 "record", "checkpoint")
        for step in steps:
            toolbox.register(step, getattr(self, step))
        return toolbox

    def stop(self, state: State) -> None:
        if state.generation >= self.generations:
            raise StopSearch("enough")

    def sow(self) -> list[Individual]:
        return [individual("seed", 1.0, -1)]

    def select_parents(self, population: Sequence[Individual]) -> list[tuple[Individual, ...]]:
        return [(population[0],)] * self.lambda_

    def vary(self, parents: list[tuple[Individual, ...]], first_birth: int, generation: int) -> list[Individual]:
        births = range(first_birth, first_birth + len(parents))
        return [individual(f"k{birth}", 1 + (birth + 1) / 10, birth) for birth in births]

    def evaluate(self, offspring: list[Individual]) -> None:
        self.evaluated += [child.id for child in offspring]

    def next_birth(self, state: State) -> int:
        return state.generation * self.lambda_

    def select_survivors(self, pool: list[Individual]) -> list[Individual]:
        return tools.selBest(pool, 2)

    def record(self, state: State, newcomers: Sequence[Individual]) -> None:
        state.logbook.record(gen=state.generation, new=len(newcomers))

    def checkpoint(self, state: State) -> None:
        self.checkpoints.append((state.generation, [each.id for each in state.population]))


def hall() -> tools.HallOfFame:
    return tools.HallOfFame(2)


def test_children_replace_the_worse_and_every_generation_is_checkpointed() -> None:
    steps = Steps(generations=2)
    state = State(hall_of_fame=hall())
    assert evolve(state, steps.toolbox()).reason == "enough"
    assert steps.evaluated == ["k0", "k1", "k2", "k3"]
    assert steps.checkpoints == [(0, ["seed"]), (1, ["k1", "k0"]), (2, ["k3", "k2"])]
    assert [each.id for each in state.hall_of_fame] == ["k3", "k2"]
    assert state.next_birth == 4
    assert [entry["new"] for entry in state.logbook] == [1, 2, 2]


def test_a_population_that_is_there_is_not_sown_again() -> None:
    state = State(hall_of_fame=hall(), population=[individual("old", 1.5, 7)], generation=3, next_birth=8)
    steps = Steps(generations=4, lambda_=1)
    evolve(state, steps.toolbox())
    assert steps.checkpoints == [(4, ["k8", "old"])]


def test_stopping_within_a_generation_leaves_the_state_of_the_last_one() -> None:
    class Exhausted(Steps):
        def evaluate(self, offspring: list[Individual]) -> None:
            super().evaluate(offspring)
            if len(self.evaluated) > 2:
                raise StopSearch("budget")

    steps = Exhausted(generations=9)
    state = State(hall_of_fame=hall())
    assert evolve(state, steps.toolbox()).reason == "budget"
    assert (state.generation, state.next_birth) == (1, 2)
    assert steps.checkpoints[-1] == (1, ["k1", "k0"])


def test_generations_without_children_are_counted_in_a_row() -> None:
    class Barren(Steps):
        def vary(self, parents: list[tuple[Individual, ...]], first_birth: int, generation: int) -> list[Individual]:
            return super().vary(parents, first_birth, generation) if generation == 2 else []

    state = State(hall_of_fame=hall())
    evolve(state, Barren(generations=4).toolbox())
    assert state.barren_generations == 2
    assert state.next_birth == 8


@pytest.mark.parametrize("lambda_", [1, 3])
def test_any_number_of_children(lambda_: int) -> None:
    state = State(hall_of_fame=hall())
    evolve(state, Steps(generations=1, lambda_=lambda_).toolbox())
    assert state.next_birth == lambda_
