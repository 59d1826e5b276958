"""Ids, fitness guards, and the individual in DEAP's own operators."""

import copy
import math
import random

import pytest
from deap import tools
from hypothesis import given, settings
from hypothesis import strategies as st

from population.individual import Individual, individual_id, normalise, set_fitness, similar

TEXT = st.text(alphabet="ab/\\ \t\r\n", max_size=30)


def individual(source="int a;", birth=-1, fitness=None):
    made = Individual.from_source(source, birth=birth, generation=0, operator="seed")
    if fitness is not None:
        set_fitness(made, fitness)
    return made


def test_the_id_is_k_and_twelve_hex_digits_of_the_normalised_source():
    # printf 'int a;\n' | sha256sum
    assert individual_id("int a;") == "k386593f1475d"


@pytest.mark.parametrize(
    ("source", "normal"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("a \t\nb  ", "a\nb\n"),
        ("a\n\n \n", "a\n"),
        ("\n\na", "\n\na\n"),
        ("", "\n"),
        ("a\rb\n", "a\rb\n"),
        ("  a  b\n", "  a  b\n"),
        ("a\\\r\nb", "a\\\nb\n"),
        ("a\\ \nb", "a\\ \nb\n"),
        ("a\u00a0\n", "a\u00a0\n"),
        ("a\x0c\n", "a\x0c\n"),
    ],
)
def test_normalising_touches_line_ends_and_trailing_blanks_only(source, normal):
    assert normalise(source) == normal


@settings(deadline=None)
@given(TEXT)
def test_normalising_twice_changes_nothing_more(source):
    assert normalise(normalise(source)) == normalise(source)


@settings(deadline=None)
@given(TEXT)
def test_normalising_keeps_all_that_is_no_blank(source):
    assert "".join(normalise(source).split()) == "".join(source.split())


@pytest.mark.parametrize("other", ["int  a;", " int a;", "int a; ;", "int A;", "\nint a;", "int a;\u200b", "int\ta;"])
def test_kernels_that_differ_in_anything_else_have_other_ids(other):
    assert individual_id(other) != individual_id("int a;")


def test_a_lone_surrogate_has_no_id():
    with pytest.raises(UnicodeEncodeError):
        individual_id("int a; // \ud800")


def test_from_source_keeps_the_normalised_source():
    child = Individual.from_source(
        "int a; \r\n", birth=4, generation=2, operator="mutate", parent_ids=("k1",), question_id="q"
    )
    assert child == Individual(
        id="k386593f1475d",
        source="int a;\n",
        birth=4,
        generation=2,
        operator="mutate",
        parent_ids=("k1",),
        question_id="q",
    )
    assert not child.fitness.valid


def test_a_failure_has_the_fitness_zero():
    one = individual()
    set_fitness(one, None)
    assert one.fitness.values == (0.0,)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-9, True, "PASSED"])
def test_a_fitness_that_is_no_speedup_is_refused_and_nothing_written(value):
    one = individual()
    with pytest.raises(ValueError, match="expected a finite speedup"):
        set_fitness(one, value)
    assert not one.fitness.valid


def test_the_fitness_belongs_to_one_individual():
    one, other = individual(), individual()
    set_fitness(one, 1.5)
    assert not other.fitness.valid
    assert one == other
    assert similar(one, other)
    assert not similar(one, individual("int b;"))


def test_the_hall_of_fame_keeps_each_kernel_once_and_the_best_first():
    fame = tools.HallOfFame(2, similar=similar)
    slow, fast, failed = individual("a", 0, 0.8), individual("b", 1, 1.2), individual("c", 2, 0.0)
    fame.update([slow, failed])
    fame.update([fast, individual("a  ", 4, 0.8)])
    assert [(each.source, each.fitness.values) for each in fame] == [("b\n", (1.2,)), ("a\n", (0.8,))]


def test_the_hall_of_fame_holds_copies():
    fame = tools.HallOfFame(1, similar=similar)
    one = individual("a", 0, 0.8)
    fame.update([one])
    set_fitness(one, 9.0)
    assert fame[0].fitness.values == (0.8,)
    assert fame[0].id == one.id


def test_a_tournament_over_all_picks_the_best():
    population = [individual(name, birth, value) for birth, (name, value) in enumerate([("a", 0.0), ("b", 1.3)])]
    random.seed(1)
    assert {each.id for each in tools.selTournament(population, 4, tournsize=30)} == {individual_id("b")}


def test_lexicase_takes_individuals():
    population = [individual("a", 0, 0.5), individual("b", 1, 1.3), individual("c", 2, 0.4)]
    random.seed(1)
    assert [each.id for each in tools.selAutomaticEpsilonLexicase(population, 2)] == [individual_id("b")] * 2


def test_a_deep_copy_is_the_same_individual_with_its_own_fitness():
    one = individual("a", 0, 0.8)
    clone = copy.deepcopy(one)
    set_fitness(one, 2.0)
    assert clone == one
    assert clone.fitness.values == (0.8,)
