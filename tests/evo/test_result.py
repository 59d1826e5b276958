"""result.json: one object that agrees with the archive."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_records import failed, individual, passed

from evo.evaluation_records import evaluation_of, record_evaluation
from evo.result import best_of, build_result, write_result
from fitness.evaluation import Evaluation, Status
from population.archive import Archive, create_archive
from population.individual import Individual
from population.records import ReplyRecord
from population.run_folder import RunFolder, create_run_folder

SETTINGS = {"suite": "tiny", "style": "question", "answerer": "offline", "rng_seed": 7}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


@pytest.fixture
def archive(run: RunFolder) -> Iterator[Archive]:
    with create_archive(run) as made:
        yield made


def judged(archive: Archive, one: Individual, evaluation: Evaluation) -> str:
    archive.record_individual(one)
    record_evaluation(archive, one.id, evaluation)
    return one.id


def result_of(archive: Archive) -> dict[str, Any]:
    return build_result(archive, settings=SETTINGS, generations=3, stop_reason="generation budget reached: 3 of 3")


def test_every_figure_agrees_with_the_evaluations(archive: Archive) -> None:
    seed = individual("seed", -1)
    judged(archive, seed, failed("seed", Status.INCORRECT, "wrong"))
    second = judged(archive, individual("second seed", -2), passed("second seed", {"x": 0.5, "y": 0.5}))
    judged(archive, individual("a", 0, seed), passed("a", {"x": 0.25, "y": 0.25}))
    best = judged(archive, individual("b", 1, seed), passed("b", {"x": 0.5, "y": 2.0}))
    judged(archive, individual("c", 2, seed), failed("c", Status.INCORRECT, "wrong"))
    judged(archive, individual("d", 3, seed), passed("d", {"x": 1.0, "y": 1.0}))  # as good, and later
    archive.record_reply(
        ReplyRecord(
            number=0, attempt=0, text="", model="m", finish_reason="stop", prompt_tokens=10, completion_tokens=5,
            cost_usd=0.125, estimated=False,
        )
    )  # fmt: skip
    assert result_of(archive) == {
        "schema": 1,
        "backend": "recorded",
        "device": "test device",
        "baseline": {"name": "sdpa", "version": "2.0"},
        "suite": "tiny",
        "style": "question",
        "answerer": "offline",
        "rng_seed": 7,
        "generations": 3,
        "evaluations": 6,
        "stop_reason": "generation budget reached: 3 of 3",
        "seed": {"id": second, "geomean": 0.5},
        "best": {
            "id": best,
            "geomean": 1.0,
            "worst_scenario": "x",
            "worst_speedup": 0.5,
            "speedups": {"x": 0.5, "y": 2.0},
            "audit": "not run",
            "audit_made": [],
            "audit_left_out": {},
        },
        "history": [0.0, 0.5, 0.5, 1.0, 1.0, 1.0],
        "failures": {"INCORRECT": 2},
        "spend": {"prompt_tokens": 10, "completion_tokens": 5, "cost_usd": 0.125},
    }


def test_a_run_in_which_nothing_passed(archive: Archive) -> None:
    judged(archive, individual("seed", -1), failed("seed", Status.COMPILE_ERROR, "line 1"))
    result = result_of(archive)
    assert (result["seed"], result["best"], result["history"]) == (None, None, [0.0])
    assert result["failures"] == {"COMPILE_ERROR": 1}


def test_a_run_that_came_to_nothing(archive: Archive) -> None:
    result = result_of(archive)
    assert (result["backend"], result["device"], result["baseline"]) == (None, None, None)
    assert (result["evaluations"], result["history"], result["best"]) == (0, [], None)


def test_it_is_strict_json_and_replaced_whole(run: RunFolder, archive: Archive) -> None:
    run.result.write_text("an older one", encoding="utf-8")
    judged(archive, individual("seed", -1), passed("seed", {"x": 0.5}))
    write_result(run, result_of(archive))
    text = run.result.read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert json.loads(text, parse_constant=pytest.fail) == result_of(archive)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_result(run, result_of(archive) | {"spend": {"cost_usd": float("nan")}})
    assert run.result.read_text(encoding="utf-8") == text


def test_the_earliest_of_equals_is_the_best() -> None:
    one, other = passed("one", {"x": 2.0}), passed("other", {"x": 2.0})
    assert best_of([("wrong", failed("w", Status.INCORRECT, "no")), ("one", one), ("other", other)]) == ("one", one)
    assert best_of([]) is None


def test_an_evaluation_comes_back_as_it_was_recorded(archive: Archive) -> None:
    evaluation = replace(passed("seed", {"x": 0.5}), compile_s=0.25)
    name = judged(archive, individual("seed", -1), evaluation)
    assert evaluation_of(archive, name) == evaluation
    assert evaluation_of(archive, "nobody") is None
