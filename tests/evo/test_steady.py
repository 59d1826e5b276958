"""The steady search: judged candidates compete at once, and what a kill left under way is used and not repeated."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from small_search import KnobJudge, SmallSearch, assemble, recorded_table, small_config
from small_steady import Counting, Deferring, end_of, go, require_sound, steady

from evo.answerers.answerer import AnswererError, Reply, Request
from evo.attempt_events import recorded_attempts
from evo.settings import ConfigError, compose_config
from evo.stop import Interrupted
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault
from population.archive import open_archive
from population.archive_reader import read_archive
from population.checkpoint import load_newest
from population.individual import individual_id
from population.run_folder import RunFolder, create_run_folder

PATIENCE_S = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def test_every_lambda_settled_questions_are_a_generation(folder: RunFolder) -> None:
    assert go(steady(generations=4), folder, Deferring()).reason == "generation budget reached: 4 of 4"
    seen = require_sound(folder)
    assert Counter(attempt.generation for attempt in seen["attempts"]) == {1: 4, 2: 4, 3: 4, 4: 4}
    assert [entry["generation"] for entry in seen["checkpoint"]["logbook"]] == [0, 1, 2, 3, 4]
    best = max(member["fitness"] for member in seen["checkpoint"]["hall_of_fame"])
    assert best > seen["result"]["seed"]["geomean"]


def test_a_child_is_a_parent_before_its_generation_is_over(folder: RunFolder) -> None:
    go(steady(concurrency=1, generations=3), folder)
    seen = require_sound(folder)
    made_in = {attempt.child_id: attempt.generation for attempt in seen["attempts"]}
    within = [
        attempt for attempt in seen["attempts"]
        if any(made_in.get(parent) == attempt.generation for parent in attempt.parent_ids)
    ]  # fmt: skip
    assert within


def test_one_at_a_time_it_is_deterministic(tmp_path: Path) -> None:
    one, two = create_run_folder(tmp_path, "one"), create_run_folder(tmp_path, "two")
    for folder in (one, two):
        go(steady(concurrency=1, generations=4), folder)
    assert end_of(one) == end_of(two)


def test_answerers_are_busy_while_candidates_are_measured(folder: RunFolder) -> None:
    """A measurement that ends only once another question is at the answerer."""
    asked_meanwhile = threading.Event()
    measuring = threading.Event()
    in_time: list[bool] = []

    class Attentive(Counting):
        def answer(self, request: Request) -> Reply:
            if measuring.is_set():
                asked_meanwhile.set()
            return super().answer(request)

    class Waits(Deferring):
        def submit(self, source: str) -> "Future[Evaluation]":
            if len(self.judged) == 0:  # the first child; the seed comes by evaluate_all
                self.judged.append(source)
                measuring.set()
                future: Future[Evaluation] = Future()
                threading.Thread(target=self._once_asked, args=(source, future), daemon=True).start()
                return future
            return super().submit(source)

        def evaluate_all(self, sources: Sequence[str], on_done: Any = None) -> list[Evaluation]:
            found = super().evaluate_all(sources, on_done)
            self.judged.clear()
            return found

        def _once_asked(self, source: str, future: "Future[Evaluation]") -> None:
            in_time.append(asked_meanwhile.wait(PATIENCE_S))
            future.set_result(recorded_table().evaluate(source))

    go(steady(concurrency=1, generations=2), folder, Waits(), Attentive())
    assert in_time == [True]


@pytest.mark.parametrize("budget", [2, 5, 8])
def test_the_evaluation_budget_is_exact_and_more_of_it_goes_on(folder: RunFolder, budget: int) -> None:
    stop = go(steady(evaluations=budget, generations=None), folder, Deferring())
    assert stop.reason == f"evaluation budget reached: {budget} of {budget}"
    assert len(require_sound(folder)["evaluations"]) == budget
    assert go(steady(evaluations=budget + 4, generations=None), folder, Deferring()).exit_code is None
    assert len(require_sound(folder)["evaluations"]) == budget + 4


class Death(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("rng_seed", range(3))
@pytest.mark.parametrize("deferred", [False, True])
def test_a_killed_run_repeats_nothing_that_was_paid_for(folder: RunFolder, rng_seed: int, deferred: bool) -> None:
    rng = random.Random(rng_seed)
    deaths = 0

    for part in range(7):
        left = [rng.randrange(3, 40) if part < 6 else 10**9]  # moments to live

        def die(search: SmallSearch, left: list[int] = left) -> None:
            archive = search.memory.archive

            def mortal(name: str) -> Callable[..., None]:
                method = getattr(type(archive), name)

                def recording(*arguments: object) -> None:
                    left[0] -= 1
                    if left[0] <= 0:
                        raise Death  # again and again: the dead write nothing
                    method(archive, *arguments)

                return recording

            for name in ("record_event", "record_reply", "record_individual", "record_evaluation", "record_prompt"):
                setattr(archive, name, mortal(name))

        with read_archive(folder) if folder.archive.exists() else _Nothing() as archive:
            replies = {(each.number, each.attempt) for each in archive.replies()}
            evaluated = {each.individual_id for each in archive.evaluations()}
        judge = Deferring(rng_seed) if deferred else KnobJudge()
        answerer = Counting()
        try:
            stop = go(steady(generations=5), folder, judge, answerer, die)
        except Death:
            deaths += 1
        assert replies.isdisjoint(answerer.asked)
        assert evaluated.isdisjoint(map(individual_id, judge.judged))
    assert deaths >= 3
    assert stop.reason == "generation budget reached: 5 of 5"
    require_sound(folder)


class _Nothing:
    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def replies(self) -> list[Any]:
        return []

    evaluations = replies


def test_an_interrupted_run_keeps_the_replies_under_way_and_drops_the_measurements(folder: RunFolder) -> None:
    judge = Deferring(room=99)

    def interrupt(search: SmallSearch) -> None:
        hear = search.toolbox.hear
        calls = [0]

        def interrupted(state: Any) -> Any:
            calls[0] += 1
            if calls[0] == 12:
                raise Interrupted("SIGTERM", 143)
            return hear(state)

        search.toolbox.register("hear", interrupted)

    before = Counting()
    stop = go(steady(generations=4), folder, judge, before, interrupt)
    assert stop.exit_code == 143
    with read_archive(folder) as archive:
        replied = {reply.number for reply in archive.replies()}
    assert {number for number, _ in before.asked} == replied
    answerer = Counting()
    go(steady(generations=4), folder, Deferring(), answerer)
    assert {number for number, _ in answerer.asked}.isdisjoint(replied)
    require_sound(folder)


def test_a_fault_of_the_environment_is_tried_again_and_three_in_a_row_end_the_search(folder: RunFolder) -> None:
    class Faulty(KnobJudge):
        faults = 2

        def submit(self, source: str) -> "Future[Evaluation]":
            future: Future[Evaluation] = Future()
            if self.faults:
                self.faults -= 1
                future.set_exception(EnvironmentFault("the driver is gone"))
            else:
                future.set_result(recorded_table().evaluate(source))
            return future

        def drop(self, outcomes: object) -> None:
            pass

    assert go(steady(concurrency=1, generations=2), folder, Faulty()).exit_code is None
    broken = Faulty()
    broken.faults = 99
    stop = go(steady(concurrency=1, generations=4), folder, broken)
    assert (stop.exit_code, stop.reason) == (
        2, "3 faults of the environment in a row, the last: the driver is gone",
    )  # fmt: skip
    assert go(steady(concurrency=1, generations=4), folder).reason == "generation budget reached: 4 of 4"
    require_sound(folder)


def test_an_unanswered_question_is_settled_without_a_child(folder: RunFolder) -> None:
    class Down(Counting):
        def answer(self, request: Request) -> Reply:
            if request.number in (1, 2):
                raise AnswererError("503", hint="wait", retryable=True)
            return super().answer(request)

    go(steady(generations=2), folder, answerer=Down())
    with read_archive(folder) as archive:
        outcomes = {attempt.number: str(attempt.outcome) for attempt in recorded_attempts(archive)}
    assert [outcomes[1], outcomes[2]] == ["unanswered", "unanswered"]


def test_the_two_kinds_of_search_do_not_go_on_with_each_other(folder: RunFolder) -> None:
    go(steady(generations=1), folder)
    with pytest.raises(ConfigError, match=r"evolution.kind was 'steady', now None"), open_archive(folder) as archive:
        assemble(small_config(generations=2), folder, archive, KnobJudge())


def test_checkpoints_are_written_as_the_search_goes(folder: RunFolder) -> None:
    go(steady(generations=3), folder)
    loaded = load_newest(folder.checkpoints)
    assert loaded is not None
    assert loaded.path.name == "gen-0003.json"


@pytest.mark.parametrize(
    "words", [["answerer=mailbox"], ["answerer=openai", "answerer.model=m", "answerer.tools=true"],
              ["single_shot.questions=2"]],
)  # fmt: skip
def test_what_needs_generations_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="needs generations; use evolution=generational"):
        compose_config(["evolution=steady", *words])
