"""A steady search of one question at a time ends as if nothing had happened, whenever it was interrupted."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_search import KnobJudge, SmallSearch, small_bank, snapshot
from small_steady import Counting, end_of, go, one_by_one, require_sound

from evo.added_questions import add_question
from evo.answerers.answerer import Reply, Request
from evo.config import StopConfig
from evo.loop import State
from evo.stop import Interrupted
from population.individual import Individual, individual_id
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def require_the_same_end(root: Path, number: int, rng_seed: int = 0) -> None:
    """Runs that were killed end as the whole one does: generators, sampler and logbook are in the checkpoint."""
    program = Path(__file__).parent / "killed_one_by_one.py"
    words = [str(root), str(number), *([str(rng_seed)] if rng_seed else [])]
    said = subprocess.run([sys.executable, str(program), *words], capture_output=True, check=True)
    killed = json.loads(said.stdout)
    assert len(killed) >= number
    whole = end_of(RunFolder(root / "whole"))
    assert whole["checkpoint"]["generation"] == 4
    for moment, kind in killed.items():
        folder = RunFolder(root / f"killed-{moment}")
        before = snapshot(folder)
        judge, answerer = KnobJudge(), Counting(rng_seed=rng_seed)
        assert go(one_by_one(rng_seed), folder, judge, answerer).reason == "generation budget reached: 4 of 4"
        require_sound(folder)
        after = end_of(folder)
        assert [key for key in whole if whole[key] != after[key]] == [], f"killed at moment {moment}, {kind}"
        assert {(number, attempt) for number, attempt, _ in before["replies"]}.isdisjoint(answerer.asked)
        assert {name for name, _ in before["evaluations"]}.isdisjoint(map(individual_id, judge.judged))


def test_runs_killed_anywhere_end_as_the_whole_one_does(tmp_path: Path) -> None:
    require_the_same_end(tmp_path, 16)


@pytest.mark.soak
@pytest.mark.parametrize("rng_seed", range(1, 6))
def test_runs_killed_at_a_hundred_random_moments_end_as_the_whole_one_does(tmp_path: Path, rng_seed: int) -> None:
    require_the_same_end(tmp_path, 100, rng_seed)


def interrupted_at(step: int) -> Callable[[SmallSearch], None]:
    """Has a signal come with the search's n-th step."""
    left = [step]

    def interrupt(search: SmallSearch) -> None:
        hear = search.toolbox.hear

        def interrupted(state: State) -> list[Individual | None]:
            left[0] -= 1
            if left[0] == 0:
                raise Interrupted("SIGTERM", 143)
            heard: list[Individual | None] = hear(state)
            return heard

        search.toolbox.register("hear", interrupted)

    return interrupt


class Stammering(Counting):
    """Gives every third question, the one that checkpoints leave open, a reply that cannot be read, the first time."""

    def answer(self, request: Request) -> Reply:
        reply = super().answer(request)
        return replace(reply, text="I think") if request.number % 3 == 0 and request.attempt == 0 else reply


@pytest.mark.parametrize("answerer", [Counting, Stammering])
@pytest.mark.parametrize("budget", [None, 6])
def test_a_run_that_a_signal_stops_at_any_step_ends_as_the_whole_one_does(
    tmp_path: Path, answerer: type[Counting], budget: int | None
) -> None:
    config = replace(one_by_one(), stop=StopConfig(generations=4, evaluations=budget))
    whole = create_run_folder(tmp_path, "whole")
    reason = go(config, whole, answerer=answerer()).reason
    expected = end_of(whole)
    for step in range(1, 30):
        folder = create_run_folder(tmp_path, f"run-{step}")
        go(config, folder, None, answerer(), interrupted_at(step))
        assert go(config, folder, answerer=answerer()).reason == reason
        require_sound(folder)
        seen = end_of(folder)
        assert [key for key in expected if expected[key] != seen[key]] == [], step


def test_without_any_checkpoint_a_search_is_made_again_from_its_archive(tmp_path: Path, folder: RunFolder) -> None:
    whole = create_run_folder(tmp_path, "whole")
    for each in (whole, folder):
        go(one_by_one(), each)
    for path in folder.checkpoints.iterdir():
        path.unlink()
    judge, answerer = KnobJudge(), Counting()
    go(one_by_one(), folder, judge, answerer)
    assert end_of(folder) == end_of(whole)
    assert (judge.judged, answerer.asked) == ([], [])


@pytest.mark.parametrize("budget", [None, 8])
def test_a_run_is_gone_on_with_from_an_older_checkpoint(
    tmp_path: Path, folder: RunFolder, budget: int | None
) -> None:
    """Where the archive holds all evaluations of the budget, the questions behind them are asked again all the same."""
    config = replace(one_by_one(), stop=StopConfig(generations=4, evaluations=budget))
    whole = create_run_folder(tmp_path, "whole")
    reasons = {go(config, each).reason for each in (whole, folder)}
    *_, last, newest = sorted(folder.checkpoints.iterdir())
    for path in (last, newest):
        path.unlink()
    judge, answerer = KnobJudge(), Counting()
    reasons.add(go(config, folder, judge, answerer).reason)
    assert len(reasons) == 1
    assert end_of(folder) == end_of(whole)
    assert (judge.judged, answerer.asked) == ([], [])


def test_a_persons_question_is_asked_at_the_same_place_again(tmp_path: Path, folder: RunFolder) -> None:
    whole = create_run_folder(tmp_path, "whole")
    own = replace(next(iter(small_bank())), id="own-1", text="Is one of the knobs worth turning?", origin="a person")
    for each in (whole, folder):
        add_question(each, own)
    go(one_by_one(), whole)
    go(one_by_one(), folder, None, None, interrupted_at(3))
    go(one_by_one(), folder)
    seen = end_of(folder)
    assert seen == end_of(whole)
    assert [question for _, question, _ in seen["questions"]].count("own-1") == 1
