"""What is remembered, and what can be asked of it."""

import pytest
from small_records import attempt, failed, individual, known, passed

from evo.history import Attempt, History, Outcome
from fitness.evaluation import Status
from population.atomic_file import parse_json, strict_json
from population.individual import Individual


@pytest.fixture
def family() -> tuple[History, dict[str, Individual]]:
    """Seed → a → b by mutation, and c of both b and the seed; a passed, b failed."""
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 0.5, "y": 2.0}))
    a = known(history, individual("a", 0, seed), passed("a", {"x": 2.0, "y": 2.0}))
    b = known(history, individual("b", 3, a), failed("b", Status.INCORRECT, "wrong by 1"))
    c = known(history, individual("c", 4, b, seed))
    for made in (
        attempt(0, (seed,), a),
        attempt(1, (seed,), None),
        attempt(2, (a,), None, outcome=Outcome.NO_CHANGE),
        attempt(3, (a,), b),
        attempt(4, (b, seed), c),
    ):
        history.add_attempt(made)
    return history, {"seed": seed, "a": a, "b": b, "c": c}


def test_an_attempt_survives_json() -> None:
    made = attempt(7, (individual("p", -1),), None, outcome=Outcome.UNANSWERED, detail="503", claim="limit")
    assert Attempt.from_json(parse_json(strict_json(made.to_json()))) == made


def test_an_attempt_with_a_field_too_many_is_refused() -> None:
    record = attempt(7, (individual("p", -1),), None).to_json()
    with pytest.raises(TypeError):
        Attempt.from_json(record | {"mood": "good"})


def test_geomeans_of_what_passed_failed_and_waits(family: tuple[History, dict[str, Individual]]) -> None:
    history, named = family
    assert [history.geomean(named[name].id) for name in ("seed", "a", "b", "c")] == [1.0, 2.0, 0.0, 0.0]
    assert history.geomean("nobody") == 0.0
    assert history.speedups(named["seed"].id) == {"x": 0.5, "y": 2.0}
    assert history.speedups(named["b"].id) == {}
    assert history.evaluation(named["c"].id) is None


def test_gain_is_over_the_best_parent_and_needs_a_child_that_passed() -> None:
    history = History()
    one = known(history, individual("one", -1), passed("one", {"x": 1.0}))
    two = known(history, individual("two", -2), passed("two", {"x": 1.6}))
    child = known(history, individual("child", 0, one, two), passed("child", {"x": 2.0}))
    dead = known(history, individual("dead", 1, one), failed("dead", Status.TIMEOUT, "20 s"))
    assert history.gain(attempt(0, (one, two), child)) == pytest.approx(1.25, rel=1e-12)
    assert history.gain(attempt(1, (one,), dead)) is None
    assert history.gain(attempt(2, (one,), None)) is None


def test_the_line_follows_first_parents_back_to_the_seed(family: tuple[History, dict[str, Individual]]) -> None:
    history, named = family
    assert [each.source for each in history.line(named["c"].id)] == ["c\n", "b\n", "a\n", "seed\n"]
    assert history.knows(named["c"].id)
    assert not history.knows("nobody")


def test_lineage_attempts_are_those_on_any_of_the_line_each_once(family: tuple[History, dict[str, Individual]]) -> None:
    history, named = family
    assert [made.number for made in history.lineage_attempts(named["b"].id)] == [0, 1, 2, 3, 4]
    assert [made.number for made in history.lineage_attempts(named["seed"].id)] == [0, 1, 4]


def test_attempts_of_a_generation(family: tuple[History, dict[str, Individual]]) -> None:
    history, _ = family
    assert [[made.number for made in history.attempts_of(generation)] for generation in (0, 1, 2, 3, 9)] == [
        [], [0, 1], [2, 3], [4], [],
    ]  # fmt: skip


def test_evaluations_come_in_the_order_in_which_they_were_remembered(
    family: tuple[History, dict[str, Individual]],
) -> None:
    history, _ = family
    assert [evaluation.geomean for evaluation in history.evaluations()] == [1.0, 2.0, None]
