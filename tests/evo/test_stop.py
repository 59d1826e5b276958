"""Stop conditions, each at the very number at which it begins to hold."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evo.answerers.answerer import Request
from evo.answerers.mailbox import ReplyAwaited
from evo.config import StopConfig
from evo.generation_gate import GenerationComplete
from evo.measured import EvaluationsAwaited
from evo.mutation import RepliesAwaited
from evo.stop import Condition, GivenUp, Interrupted, Standing, StopSearch, check, conditions, is_final

OFF = StopConfig(barren_generations=None)  # type: ignore[arg-type]
REQUEST = Request(number=1, attempt=0, prompt="", layer="", parent_sources=())
START = Standing(
    generation=0,
    evaluations=0,
    evaluations_since_best=0,
    best_geomean=0.0,
    barren_generations=0,
    elapsed_s=0.0,
    spend_usd=0.0,
)


@pytest.mark.parametrize(
    ("limit", "before", "at", "reason"),
    [
        (
            {"target_geomean": 1.2}, {"best_geomean": 1.1999}, {"best_geomean": 1.2},
            "target geomean reached: 1.2 of 1.2",
        ),
        ({"evaluations": 60}, {"evaluations": 59}, {"evaluations": 60}, "evaluation budget reached: 60 of 60"),
        ({"generations": 0}, None, {"generation": 0}, "generation budget reached: 0 of 0"),
        ({"generations": 4}, {"generation": 3}, {"generation": 5}, "generation budget reached: 5 of 4"),
        ({"wall_time_s": 2.5}, {"elapsed_s": 2.4}, {"elapsed_s": 2.5}, "time budget (s) reached: 2.5 of 2.5"),
        ({"spend_usd": 0.1}, {"spend_usd": 0.09}, {"spend_usd": 0.1}, "spend budget (USD) reached: 0.1 of 0.1"),
        (
            {"stall_evaluations": 8}, {"evaluations_since_best": 7}, {"evaluations_since_best": 8},
            "stall limit reached: 8 of 8",
        ),
        (
            {"barren_generations": 2}, {"barren_generations": 1}, {"barren_generations": 2},
            "generations without a new candidate reached: 2 of 2",
        ),
    ],
)  # fmt: skip
def test_a_condition_holds_from_its_limit_on(
    limit: dict[str, Any], before: dict[str, Any] | None, at: dict[str, Any], reason: str
) -> None:
    limits = replace(OFF, **limit)
    if before is not None:
        check(replace(START, **before), limits)
    with pytest.raises(StopSearch) as stop:
        check(replace(START, **at), limits)
    assert stop.value.reason == reason


def test_without_limits_a_search_never_ends() -> None:
    check(Standing(generation=9**9, evaluations=9**9, evaluations_since_best=9**9, best_geomean=9.0,
                   barren_generations=9**9, elapsed_s=1e9, spend_usd=1e9), OFF)  # fmt: skip


def test_the_goal_is_named_before_the_budget() -> None:
    limits = replace(OFF, target_geomean=1.0, evaluations=5)
    with pytest.raises(StopSearch, match="target geomean"):
        check(replace(START, best_geomean=1.0, evaluations=5), limits)


def test_every_limit_of_the_configuration_is_a_condition() -> None:
    numbered = StopConfig(**{name: number for number, name in enumerate(vars(StopConfig()), start=1)})
    assert {condition.limit for condition in conditions(numbered)} == set(range(1, 8))


def test_an_interruption_carries_its_exit_code() -> None:
    stop = Interrupted("SIGTERM", exit_code=143)
    assert (stop.reason, stop.exit_code) == ("interrupted by SIGTERM", 143)


@pytest.mark.parametrize(
    "stop",
    [
        Interrupted("SIGTERM", 143),
        GivenUp("the answerer gave up: the server answered 401: no"),
        RepliesAwaited([ReplyAwaited(REQUEST, Path("outbox/0001.md"))], []),
        EvaluationsAwaited(["one", "two"]),
        GenerationComplete("generation 12 is complete"),
        StopSearch("the trace ends here"),
    ],
    ids=lambda stop: type(stop).__name__,
)
def test_a_search_that_can_go_on_has_not_come_to_its_end(stop: StopSearch) -> None:
    assert not is_final(stop.reason)


@pytest.mark.parametrize("condition", conditions(OFF), ids=lambda condition: condition.text)
def test_a_condition_that_holds_is_the_end(condition: Condition) -> None:
    reason = replace(condition, limit=0.0).reason(START)
    assert reason is not None
    assert is_final(reason)


def test_a_search_without_a_seed_that_passes_is_at_its_end() -> None:
    assert is_final("no seed passed, so there is nothing to ask about (INCORRECT: wrong by 1)")
    assert is_final("the next call may cost 0.02 USD; 0.09 of 0.1 are spent (raise stop.spend_usd to go on)")
