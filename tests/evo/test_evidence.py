"""What a prompt says of a parent and of what was tried."""

from dataclasses import replace

from small_records import attempt, build, failed, individual, known, passed

from evo.evidence import ATTEMPTS_SHOWN, attempt_parts, compiler_message, parent_part
from evo.history import History, Outcome
from evo.prompt import AttemptPart, BuildFigure, ScenarioFigure
from fitness.evaluation import Status


def test_a_parent_comes_with_its_figures() -> None:
    history = History()
    evaluation = replace(passed("k", {"x": 2.0, "y": 0.5}), builds=(build("slow", stores=8, loads=16),))
    part = parent_part(history, known(history, individual("k", -1), evaluation))
    assert (part.source, part.status, part.geomean) == ("k\n", "PASSED", 1.0)
    assert part.scenarios == (
        ScenarioFigure(name="x", candidate_ms=0.5, baseline_ms=1.0, speedup=2.0),
        ScenarioFigure(name="y", candidate_ms=2.0, baseline_ms=1.0, speedup=0.5),
    )
    assert part.builds == (
        BuildFigure(
            build="HEAD_DIM=64",
            kernel="attention_forward",
            registers=40,
            spill_bytes=24,
            shared_bytes=512,
            advisories=("slow",),
        ),
    )


def test_a_parent_that_was_not_judged_says_so() -> None:
    history = History()
    part = parent_part(history, known(history, individual("k", -1)))
    assert (part.status, part.geomean, part.scenarios) == ("not measured", None, ())


def test_attempts_tell_what_was_changed_and_what_came_of_it() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    better = known(history, individual("better", 0, seed), passed("better", {"x": 1.5}))
    dead = known(history, individual("dead", 1, seed), failed("dead", Status.INCORRECT, "wrong by 1"))
    for made in (
        attempt(0, (seed,), better, detail="wider tiles"),
        attempt(1, (seed,), dead, detail="no mask"),
        attempt(2, (seed,), better, outcome=Outcome.DUPLICATE, detail="judged before"),
        attempt(3, (seed,), None, detail="the fence never closes"),
        attempt(5, (seed,), None, outcome=Outcome.UNANSWERED, detail="no reply came"),
        attempt(4, (seed,), None, outcome=Outcome.NO_CHANGE, detail="no change: the child equals its parent"),
    ):
        history.add_attempt(made)
    assert attempt_parts(history, seed) == (
        AttemptPart(change="wider tiles", status="PASSED", gain=1.5),
        AttemptPart(change="no mask", status="INCORRECT", reason="wrong by 1"),
        AttemptPart(change="", status="unreadable", reason="the fence never closes"),
        AttemptPart(change="", status="no_change", reason="no change: the child equals its parent"),
    )


def test_only_the_last_attempts_are_shown() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    for number in range(ATTEMPTS_SHOWN + 3):
        history.add_attempt(attempt(number, (seed,), None, detail=f"attempt {number}"))
    shown = [part.reason for part in attempt_parts(history, seed)]
    assert shown == [f"attempt {number}" for number in range(3, ATTEMPTS_SHOWN + 3)]


def test_the_compiler_is_quoted_only_where_the_last_child_did_not_compile() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    assert compiler_message(history, seed) == ""
    refused = known(history, individual("refused", 0, seed), failed("refused", Status.COMPILE_ERROR, "line 7: no"))
    history.add_attempt(attempt(0, (seed,), refused))
    assert compiler_message(history, seed) == "line 7: no"
    history.add_attempt(attempt(1, (seed,), None))  # no child, so nothing newer to say
    assert compiler_message(history, seed) == "line 7: no"
    wrong = known(history, individual("wrong", 2, seed), failed("wrong", Status.INCORRECT, "wrong by 1"))
    history.add_attempt(attempt(2, (seed,), wrong))
    assert compiler_message(history, seed) == ""
