"""How a run stands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deap import tools
from small_records import failed, passed

from evo.loop import State
from evo.stop import Standing
from evo.tracking import Tracker
from fitness.evaluation import Status
from population.archive import Archive, create_archive
from population.records import ReplyRecord
from population.run_folder import create_run_folder


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


def test_counts_start_over_with_each_new_best(archive: Archive) -> None:
    tracker = Tracker(archive=archive, earlier_s=0.0)
    seen = []
    for evaluation in (
        failed("a", Status.INCORRECT, "wrong"),
        passed("b", {"x": 0.5}),
        passed("c", {"x": 0.5}),  # as good is no new best
        passed("d", {"x": 0.4}),
        passed("e", {"x": 2.0}),
    ):
        tracker.judged(evaluation)
        seen.append((tracker.evaluations, tracker.since_best, tracker.best_geomean))
    assert seen == [(1, 1, 0.0), (2, 0, 0.5), (3, 1, 0.5), (4, 2, 0.5), (5, 0, 2.0)]


def test_time_goes_on_where_the_earlier_part_ended(archive: Archive) -> None:
    ticks = iter([100.0, 103.5, 110.0])
    tracker = Tracker(archive=archive, earlier_s=40.0, clock=lambda: next(ticks))
    assert [tracker.elapsed_s(), tracker.elapsed_s()] == [43.5, 50.0]


def test_a_standing_is_made_of_state_counts_clock_and_spend(archive: Archive) -> None:
    tracker = Tracker(archive=archive, earlier_s=1.0, clock=lambda: 0.0)
    tracker.judged(passed("b", {"x": 0.5}))
    archive.record_reply(
        ReplyRecord(
            number=0, attempt=0, text="", model="m", finish_reason="stop", prompt_tokens=10, completion_tokens=5,
            cost_usd=0.125, estimated=False,
        )
    )  # fmt: skip
    state = State(hall_of_fame=tools.HallOfFame(1), generation=3, barren_generations=2)
    assert tracker.standing(state) == Standing(
        generation=3,
        evaluations=1,
        evaluations_since_best=0,
        best_geomean=0.5,
        barren_generations=2,
        elapsed_s=1.0,
        spend_usd=0.125,
    )
