"""Parents and survivors."""

import random

import pytest

from evo.selection import Lexicase, Tournament, viable
from population.individual import Individual


def individual(name: str, geomean: float) -> Individual:
    made = Individual(id=name, source=name, birth=-1, generation=0, operator="seed")
    made.fitness.values = (geomean,)
    return made


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(3)


def names(individuals: list[Individual]) -> list[str]:
    return [each.id for each in individuals]


def test_the_best_survive_a_tournament_search_and_failures_never_do() -> None:
    pool = [individual("a", 0.9), individual("failed", 0.0), individual("b", 1.2), individual("c", 1.0)]
    assert names(Tournament(size=2).survivors(pool, 2)) == ["b", "c"]
    assert names(Tournament(size=2).survivors(pool, 9)) == ["b", "c", "a"]
    assert names(viable(pool)) == ["a", "b", "c"]


def test_tournament_of_the_whole_population_finds_the_best() -> None:
    population = [individual(str(speed), float(speed)) for speed in range(1, 6)]
    assert "5" in names(Tournament(size=40).parents(population, 1))


def test_a_population_of_one_is_its_own_parent() -> None:
    assert names(Tournament(size=3).parents([individual("only", 1.0)], 4)) == ["only"] * 4


SPEEDUPS = {
    "allrounder": {"x": 1.0, "y": 1.0},
    "specialist": {"x": 0.5, "y": 1.7},
    "worse": {"x": 0.7, "y": 0.7},
}


def lexicase_pool() -> list[Individual]:
    return [individual("allrounder", 1.0), individual("specialist", 0.92), individual("worse", 0.7)]


def test_lexicase_lets_a_specialist_live_and_never_picks_the_dominated() -> None:
    lexicase = Lexicase(speedups=SPEEDUPS.__getitem__, elites=1)
    chosen = names(lexicase.parents(lexicase_pool(), 60))
    assert set(chosen) == {"allrounder", "specialist"}
    survivors = [names(lexicase.survivors(lexicase_pool(), 2)) for _ in range(30)]
    assert {first for first, _ in survivors} == {"allrounder"}
    assert ["allrounder", "specialist"] in survivors


def test_lexicase_survivors_are_each_there_once() -> None:
    lexicase = Lexicase(speedups=SPEEDUPS.__getitem__, elites=0)
    assert sorted(names(lexicase.survivors(lexicase_pool(), 5))) == ["allrounder", "specialist", "worse"]
