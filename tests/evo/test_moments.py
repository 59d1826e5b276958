"""What the questions get to see of the memory: moments, layers, noise, slots."""

import math
from dataclasses import replace

import pytest
from small_records import attempt, build, failed, individual, known, passed, timing

from evo.history import History, Outcome
from evo.moments import layers_tried, line_attempts, lineage_history, slot_values, why_it_failed
from evo.noise import noise
from fitness.evaluation import Status
from questions.question import Layer, Moment
from questions.triggers import Thresholds, read_moment


def test_noise_of_two_scenarios_by_hand() -> None:
    """Half-widths of the logarithms are ln(1.21)/2 = 0.09531 and ln(1.0404)/2 = 0.0198; √(0.09531² + 0.0198²) / 2."""
    evaluation = replace(
        passed("k", {"x": 1.0, "y": 2.0}),
        timings=(timing("x", 1.0, low=1 / 1.1, high=1.1), timing("y", 2.0, low=2 / 1.02, high=2 * 1.02)),
    )
    assert noise(evaluation) == pytest.approx(0.048672, abs=1e-6)


def test_noise_of_n_equal_scenarios_falls_with_the_root_of_n() -> None:
    timings = [timing(str(place), 1.0, low=0.99, high=1.01) for place in range(25)]
    evaluation = replace(passed("k", {"x": 1.0}), timings=tuple(timings))
    assert noise(evaluation) == pytest.approx(math.log(1.01 / 0.99) / 2 / 5, rel=1e-12)


def test_there_is_no_noise_without_timings() -> None:
    assert noise(failed("k", Status.INCORRECT, "wrong")) == 0.0


def test_a_seed_that_nobody_was_asked_about_has_a_history_without_attempts() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 0.5}))
    seen = lineage_history(history, [seed])
    assert (seen.attempts, seen.start_geomean, seen.sources, seen.parents) == ((), 0.5, ("seed\n",), 1)


def test_the_lineage_tells_how_its_line_was_made_and_what_was_tried_on_the_parent() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    a = known(history, individual("a", 0, seed), passed("a", {"x": 1.5}))
    sibling = known(history, individual("sibling", 1, seed), passed("sibling", {"x": 9.0}))
    b = known(history, individual("b", 2, a), failed("b", Status.STOPPED_EARLY, "far behind"))
    for made in (
        attempt(0, (seed,), a),
        attempt(1, (seed,), sibling),  # neither made the line of `a` nor was made on it
        attempt(2, (a,), b, claim="limit"),
        attempt(3, (a,), None),
        attempt(4, (seed,), a, outcome=Outcome.DUPLICATE),  # `a` was there before
    ):
        history.add_attempt(made)
    assert [made.number for made in line_attempts(history, a)] == [0, 2, 3]
    seen = lineage_history(history, [a])
    assert [(each.status, each.geomean, each.parent_geomean, each.claim) for each in seen.attempts] == [
        ("PASSED", 1.5, 1.0, ""),
        ("STOPPED_EARLY", None, 1.5, "limit"),
        ("NO_CANDIDATE", None, None, ""),
    ]
    assert seen.sources == ("seed\n", "a\n")


def test_a_crossover_is_seen_from_its_first_parent() -> None:
    history = History()
    one = known(history, individual("one", -1), passed("one", {"x": 1.0}))
    two = known(history, individual("two", -2), passed("two", {"x": 1.1}))
    assert read_moment(lineage_history(history, [one, two]), Thresholds()).moment is Moment.CROSSOVER


@pytest.mark.parametrize(
    ("status", "moment"),
    [
        (Status.COMPILE_ERROR, Moment.COMPILE_FAILURE),
        (Status.INCORRECT, Moment.INCORRECT),
        (Status.PASSED, Moment.BIG_WIN),
    ],
)
def test_the_last_child_decides_on_the_moment(status: Status, moment: Moment) -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    evaluation = passed("a", {"x": 1.9}) if status is Status.PASSED else failed("a", status, "no")
    child = known(history, individual("a", 0, seed), evaluation)
    history.add_attempt(attempt(0, (seed,), child))
    parent = child if status is Status.PASSED else seed
    assert read_moment(lineage_history(history, [parent]), Thresholds()).moment is moment


def test_layers_of_the_last_two_attempts() -> None:
    seed = individual("seed", -1)
    made = [attempt(number, (seed,), None, layer=layer) for number, layer in enumerate(("launch", "memory", "memory"))]
    assert layers_tried(made) == (Layer.MEMORY,)
    assert layers_tried(made, last=3) == (Layer.LAUNCH, Layer.MEMORY)
    assert layers_tried([]) == ()


def test_slots_of_a_parent_with_everything() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0, "y": 1.0}))
    evaluation = replace(
        passed("a", {"x": 0.9, "y": 1.5}),
        builds=(build("wgmma serialised", registers=168), build(registers=96, stores=48, loads=64)),
    )
    parent = known(history, individual("a", 0, seed), evaluation)
    dead = known(history, individual("dead", 1, parent), failed("dead", Status.COMPILE_ERROR, "\nline 3: no\nline 4"))
    history.add_attempt(attempt(0, (seed,), parent))
    assert slot_values(history, parent) == {
        "worst_scenario": "x",
        "worst_speedup": "0.900",
        "best_scenario": "y",
        "registers": "168",
        "spills": "48",
        "advisory": "wgmma serialised",
        "gain": "1.16",
    }
    history.add_attempt(attempt(1, (parent,), dead))
    values = slot_values(history, parent)
    assert values["failure"] == "line 3: no"
    assert "gain" not in values


def test_slots_that_nothing_can_fill_are_left_out() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 0.5}))
    assert slot_values(history, seed) == {"worst_scenario": "x", "worst_speedup": "0.500"}
    waiting = known(history, individual("waiting", 0, seed))
    assert slot_values(history, waiting) == {}


def test_why_an_attempt_failed() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    dead = known(history, individual("dead", 1, seed), failed("dead", Status.TIMEOUT, "20 s"))
    waiting = known(history, individual("waiting", 2, seed))
    assert why_it_failed(history, attempt(0, (seed,), None, detail="cut off")) == "cut off"
    assert why_it_failed(history, attempt(1, (seed,), dead, detail="wider tiles")) == "20 s"
    assert why_it_failed(history, attempt(2, (seed,), waiting, detail="wider tiles")) == ""
    assert why_it_failed(history, attempt(3, (seed,), seed, detail="wider tiles")) == ""
