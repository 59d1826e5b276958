"""The funnel's steps that depend on measuring and on the compiler."""

import math
from dataclasses import replace

import pytest
from small_records import attempt, build, failed, individual, known, passed, within

from evo.compare.funnel import Funnel, funnel_of
from evo.history import History
from evo.judging import question_outcome
from evo.noise import beyond_noise
from fitness.evaluation import Status


def test_faster_is_beyond_the_noise_of_child_and_parent() -> None:
    """Each may be off by log 1.05 / log 1.02: a gain of 1.055 is beyond the child's own 4.9 %, and not of both."""
    assert beyond_noise(1.055, 0.0488)
    assert not beyond_noise(1.055, 0.0488, 0.0488)
    assert beyond_noise(1 / 1.08, 0.0488, 0.0488)
    history = History()
    parent = known(history, individual("parent", 0), within("parent", 1.0, 1.05))
    for number, (speed, faster) in enumerate([(1.055, 0), (1.08, 1), (0.9, 0)]):
        child = known(history, individual(f"child {number}", 1, parent), within(f"child {number}", speed, 1.05))
        asked = attempt(number, (parent,), child)
        assert funnel_of([asked], history).faster == faster
        assert question_outcome(history, asked).noise == pytest.approx(math.log(1.05))  # the search's own is as it was


def test_the_funnel_counts_kernels_that_the_compiler_did_not_warn_of() -> None:
    history = History()
    parent = known(history, individual("parent", 0), passed("parent", {"only": 1.0}))
    clean = replace(passed("clean", {"only": 1.1}), builds=(build(), build()))
    warned = replace(passed("warned", {"only": 0.6}), builds=(build(), build("wgmma is serialized")))
    wrong = replace(failed("wrong", Status.INCORRECT, "o differs"), builds=(build(),))
    broken = failed("broken", Status.COMPILE_ERROR, "no")
    asked = [
        attempt(number, (parent,), known(history, individual(name, 1, parent), evaluation))
        for number, (name, evaluation) in enumerate(
            {"clean": clean, "warned": warned, "wrong": wrong, "broken": broken}.items()
        )
    ]
    assert funnel_of(asked, history) == Funnel(
        questions=4, replies=4, readable=4, new=4, compiled=3, unwarned=2, right=2, faster=1
    )
