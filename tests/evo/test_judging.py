"""Judging a generation: each source once, within the budget, with credit to the question behind it."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_records import attempt, failed, individual, known, passed
from small_search import small_bank

from evo.history import History, Outcome
from evo.judging import Judging, Race
from evo.stop import StopSearch, is_final
from fitness.evaluation import Evaluation, Status
from fitness.faults import BaselineUnavailableError, EnvironmentFault
from fitness.race import Bar
from population.archive import Archive, create_archive
from population.individual import Individual
from population.run_folder import create_run_folder
from questions.question import Moment
from questions.sampler import QuestionSampler

VERDICTS = {
    "fast\n": passed("fast\n", {"x": 2.0}),
    "slow\n": passed("slow\n", {"x": 0.5}),
    "wrong\n": failed("wrong\n", Status.INCORRECT, "wrong by 1"),
    "refused\n": failed("refused\n", Status.COMPILE_ERROR, "line 3"),
    "hopeless\n": failed("hopeless\n", Status.STOPPED_EARLY, "far behind"),
}


class TableJudge:
    """Judges by a table; keeps what it was asked for."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        self.judged += sources
        for place in reversed(range(len(sources))):  # a device finishes in an order of its own
            if on_done is not None:
                on_done(place, VERDICTS[sources[place]])
        return [VERDICTS[source] for source in sources]


class Scene:
    """A judge with its surroundings."""

    def __init__(self, archive: Archive, budget: int | None = None) -> None:
        self.archive = archive
        self.history = History()
        self.sampler = QuestionSampler(small_bank(), random.Random(1))
        self.judge = TableJudge()
        self.heard: list[tuple[str, Status]] = []
        self.judging = Judging(
            evaluator=self.judge,
            archive=archive,
            history=self.history,
            sampler=self.sampler,
            budget=budget,
            on_judged=lambda one, evaluation: self.heard.append((one.source, evaluation.status)),
        )

    def newcomers(self, *sources: str) -> list[Individual]:
        made = [individual(source, -1 - place) for place, source in enumerate(sources)]
        for each in made:
            self.archive.record_individual(each)
            self.history.add_individual(each)
        return made


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


def test_every_individual_gets_its_fitness_and_a_failure_gets_zero(archive: Archive) -> None:
    scene = Scene(archive)
    made = scene.newcomers("fast", "wrong", "slow", "refused", "hopeless")
    scene.judging.evaluate(made)
    assert [each.fitness.values for each in made] == [(2.0,), (0.0,), (0.5,), (0.0,), (0.0,)]
    assert archive.statuses() == {"COMPILE_ERROR": 1, "INCORRECT": 1, "PASSED": 2, "STOPPED_EARLY": 1}
    assert scene.heard[0] == ("hopeless\n", Status.STOPPED_EARLY)


def test_what_the_archive_holds_is_not_judged_again_and_still_told(archive: Archive) -> None:
    first = Scene(archive)
    first.judging.evaluate(first.newcomers("fast", "wrong"))
    second = Scene(archive)
    made = second.newcomers("fast", "wrong")
    second.judging.evaluate(made)
    assert second.judge.judged == []
    assert [each.fitness.values for each in made] == [(2.0,), (0.0,)]
    assert second.history.evaluation(made[0].id) == VERDICTS["fast\n"]
    assert second.heard == [("fast\n", Status.PASSED), ("wrong\n", Status.INCORRECT)]


def test_the_budget_ends_the_search_exactly(archive: Archive) -> None:
    scene = Scene(archive, budget=2)
    made = scene.newcomers("fast", "wrong", "slow")
    with pytest.raises(StopSearch) as stop:
        scene.judging.evaluate(made)
    assert stop.value.reason == "evaluation budget reached: 2 of 2"
    assert scene.judge.judged == ["fast\n", "wrong\n"]
    assert archive.evaluation_count() == 2
    assert not made[0].fitness.valid  # the generation is not complete


def test_a_budget_that_is_used_up_still_lets_the_recalled_through(archive: Archive) -> None:
    first = Scene(archive)
    first.judging.evaluate(first.newcomers("fast", "slow"))
    second = Scene(archive, budget=2)
    second.judging.evaluate(second.newcomers("fast", "slow"))
    assert second.judge.judged == []
    third = Scene(archive, budget=1)  # lowered on resume: room is never negative
    made = third.newcomers("fast", "slow", "wrong")
    with pytest.raises(StopSearch, match="evaluation budget reached: 1 of 1"):
        third.judging.evaluate(made)
    assert third.judge.judged == []


class Unsteady(TableJudge):
    """Measures one source a call until its luck is out; `faults` says before which calls something breaks."""

    def __init__(self, faults: Sequence[bool]) -> None:
        super().__init__()
        self.faults = list(faults)

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        for place, source in enumerate(sources):
            if self.faults and self.faults.pop(0):
                raise EnvironmentFault("the device is lost")
            self.judged.append(source)
            if on_done is not None:
                on_done(place, VERDICTS[source])
        return [VERDICTS[source] for source in sources]


def unsteady(archive: Archive, *faults: bool) -> Scene:
    scene = Scene(archive)
    scene.judge = Unsteady(faults)
    scene.judging = Judging(
        evaluator=scene.judge, archive=archive, history=scene.history, sampler=scene.sampler, budget=None,
        on_judged=lambda one, evaluation: scene.heard.append((one.source, evaluation.status)),
    )  # fmt: skip
    return scene


def test_two_faults_of_the_environment_in_a_row_are_tried_again(archive: Archive) -> None:
    scene = unsteady(archive, False, True, True, False, True, True, False)
    made = scene.newcomers("fast", "wrong", "slow")
    scene.judging.evaluate(made)
    assert scene.judge.judged == ["fast\n", "wrong\n", "slow\n"]  # none of them twice
    assert [each.fitness.values for each in made] == [(2.0,), (0.0,), (0.5,)]
    assert len(scene.heard) == 3


def test_the_third_in_a_row_ends_the_search_in_order_and_keeps_what_was_measured(archive: Archive) -> None:
    scene = unsteady(archive, False, True, True, True)
    with pytest.raises(StopSearch) as stop:
        scene.judging.evaluate(scene.newcomers("fast", "wrong"))
    assert stop.value.reason == "3 faults of the environment in a row, the last: the device is lost"
    assert stop.value.exit_code == 2
    assert not is_final(stop.value.reason)
    assert archive.evaluation_count() == 1
    again = Scene(archive)
    again.judging.evaluate(again.newcomers("fast", "wrong"))
    assert again.judge.judged == ["wrong\n"]


def test_a_baseline_that_is_not_there_is_not_waited_for(archive: Archive) -> None:
    class Without(TableJudge):
        def evaluate_all(
            self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
        ) -> list[Evaluation]:
            self.judged += sources
            raise BaselineUnavailableError("fa3 is not installed")

    scene = unsteady(archive)
    scene.judge = Without()
    judging = Judging(
        evaluator=scene.judge, archive=archive, history=scene.history, sampler=scene.sampler, budget=None,
        on_judged=lambda one, evaluation: None,
    )  # fmt: skip
    with pytest.raises(BaselineUnavailableError):
        judging.evaluate(scene.newcomers("fast"))
    assert scene.judge.judged == ["fast\n"]


def test_in_a_race_the_bar_is_the_last_survivor_of_the_generations_before(archive: Archive) -> None:
    class Racing(TableJudge):
        bars: list[Bar | None] = []  # noqa: RUF012  # of this test alone

        def against(self, bar: Bar | None) -> TableJudge:
            self.bars.append(bar)
            return self

    scene, judge = Scene(archive), Racing()
    judging = Judging(
        evaluator=judge, archive=archive, history=scene.history, sampler=scene.sampler, budget=None,
        on_judged=lambda one, evaluation: None, race=Race(evaluator=judge, place=1),
    )  # fmt: skip
    seed = known(scene.history, individual("seed", -9))
    judging.evaluate(scene.newcomers("slow"))
    with_roof = passed("seed\n", {"x": 0.5})
    timings = tuple(replace(each, roof_ms=0.1) for each in with_roof.timings)
    scene.history.add_evaluation(individual("slow", -1).id, replace(with_roof, timings=timings))
    assert seed.id != individual("slow", -1).id
    child = individual("fast", -3)
    archive.record_individual(child)
    judging.evaluate([child])
    assert judge.bars == [None, Bar(geomean=0.5, ceilings={"x": pytest.approx(11.0)})]


def test_nobody_to_judge(archive: Archive) -> None:
    scene = Scene(archive, budget=0)
    scene.judging.evaluate([])
    assert archive.evaluation_count() == 0


def test_questions_are_credited_with_what_came_of_them(archive: Archive) -> None:
    scene = Scene(archive)
    seed, fast, wrong, refused = made = scene.newcomers("slow", "fast", "wrong", "refused")
    scene.judging.evaluate(made)
    for _ in range(8):
        scene.sampler.sample(Moment.ANY, ["portable"])
    asked = next(each.question_id for each in scene.sampler.statistics() if each.asked)
    outcomes = [
        attempt(0, (seed,), fast),  # four times as fast
        attempt(1, (seed,), wrong),
        attempt(2, (seed,), refused),
        attempt(3, (seed,), None, outcome=Outcome.UNREADABLE),
        attempt(4, (seed,), None, outcome=Outcome.NO_CHANGE),
        attempt(5, (seed,), fast, outcome=Outcome.DUPLICATE),
        attempt(6, (seed,), None, outcome=Outcome.UNANSWERED),
    ]
    scene.judging.credit([replace(each, question_id=asked) for each in outcomes])
    [credited] = [each for each in scene.sampler.statistics() if each.question_id == asked]
    assert (credited.answered, credited.compiled, credited.right, credited.gained) == (5, 2, 1, 1)
    assert credited.mean_gain == pytest.approx(4.0)
    assert scene.sampler.state()["tallies"][asked]["credited"] == 6  # the unanswered one does not count


def test_a_child_that_was_given_up_on_as_too_slow_is_right_without_a_gain(archive: Archive) -> None:
    scene = Scene(archive)
    seed, hopeless = made = scene.newcomers("slow", "hopeless")
    scene.judging.evaluate(made)
    question = scene.sampler.sample(Moment.ANY, ["portable"])
    scene.judging.credit([replace(attempt(0, (seed,), hopeless), question_id=question.id)])
    tally = scene.sampler.state()["tallies"][question.id]
    assert (tally["right"], tally["gained"], tally["timed"], tally["reward_sum"]) == (1, 0, 0, 0.0)


def test_a_parent_that_is_known_by_its_id_alone_gives_no_gain() -> None:
    history = History()
    child = known(history, individual("fast", 0), VERDICTS["fast\n"])
    assert history.gain(attempt(0, (individual("slow", -1),), child)) is None
