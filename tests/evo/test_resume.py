"""A run that was killed, damaged or stopped goes on as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from killed_runs import mortal_config
from small_search import KnobJudge, assemble, run_part, small_config, snapshot

from evo.answerers.answerer import AnswererError, Reply, Request
from evo.answerers.offline import OfflineAnswerer
from evo.config import SelectionKind
from evo.settings import ConfigError
from population.archive import create_archive, open_archive
from population.checkpoint import load_newest
from population.faults import CheckpointError
from population.run_folder import RunFolder, create_run_folder


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [key for key in one if one[key] != other[key]]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


@pytest.fixture
def whole(tmp_path: Path) -> RunFolder:
    """Four generations at once."""
    made = create_run_folder(tmp_path, "whole")
    run_part(small_config(), made)
    return made


def require_the_same_end(root: Path, number: int, rng_seed: int | None = None) -> dict[str, str]:
    """The moments, by their numbers, at which runs were killed that all ended as the whole one did."""
    words = [str(root), str(number), *([] if rng_seed is None else [str(rng_seed)])]
    program = Path(__file__).parent / "killed_runs.py"
    said = subprocess.run([sys.executable, str(program), *words], capture_output=True, check=True)
    killed: dict[str, str] = json.loads(said.stdout)
    whole = snapshot(RunFolder(root / "whole"))
    assert whole["checkpoint"]["generation"] == 3
    config = mortal_config(rng_seed or 0)
    for moment, kind in killed.items():
        folder = RunFolder(root / f"killed-{moment}")
        assert run_part(config, folder).reason == "generation budget reached: 3 of 3"
        assert differences(whole, snapshot(folder)) == [], f"killed at moment {moment}, {kind}"
    return killed


KINDS = {"in a transaction, before its end", "a checkpoint's path, .json", "after an evaluation"}


def test_runs_killed_anywhere_end_as_the_whole_one_does(tmp_path: Path) -> None:
    killed = require_the_same_end(tmp_path, 24)
    assert len(killed) >= 30
    assert {*killed.values()} >= KINDS


@pytest.mark.soak
@pytest.mark.parametrize("rng_seed", range(1, 6))
def test_runs_killed_at_a_hundred_random_moments_end_as_the_whole_one_does(tmp_path: Path, rng_seed: int) -> None:
    killed = require_the_same_end(tmp_path, 100, rng_seed)
    assert len(killed) >= 100
    assert {*killed.values()} >= KINDS


def test_the_whole_run_had_something_to_lose(whole: RunFolder) -> None:
    seen = snapshot(whole)
    assert {attempt.outcome for attempt in seen["attempts"]} >= {"child", "duplicate"}
    assert {attempt.operator for attempt in seen["attempts"]} == {"mutate", "crossover"}
    fitness = [member["fitness"] for member in seen["checkpoint"]["hall_of_fame"]]
    assert len(set(fitness)) < len(fitness)  # ties, which an order could get lost among
    assert len(seen["evaluations"]) == len(seen["candidates"])


@pytest.mark.parametrize("selection", list(SelectionKind))
def test_two_generations_and_two_more_are_four(tmp_path: Path, folder: RunFolder, selection: SelectionKind) -> None:
    whole = create_run_folder(tmp_path, "whole")
    run_part(small_config(generations=4, selection=selection), whole)
    run_part(small_config(generations=2, selection=selection), folder)
    run_part(small_config(generations=4, selection=selection), folder)
    assert differences(snapshot(whole), snapshot(folder)) == []


@pytest.mark.parametrize("budget", [3, 5, 7, 9])
def test_a_run_whose_evaluations_ran_out_goes_on_with_more_of_them(
    tmp_path: Path, folder: RunFolder, whole: RunFolder, budget: int
) -> None:
    stop = run_part(small_config(evaluations=budget), folder)
    assert stop.reason == f"evaluation budget reached: {budget} of {budget}"
    assert len(snapshot(folder)["evaluations"]) == budget
    run_part(small_config(), folder)
    assert differences(snapshot(whole), snapshot(folder)) == []


def test_a_budget_that_is_reached_already_changes_nothing(folder: RunFolder) -> None:
    run_part(small_config(generations=2), folder)
    before, judge = snapshot(folder), KnobJudge()
    assert run_part(small_config(generations=2), folder, judge).reason == "generation budget reached: 2 of 2"
    assert differences(before, snapshot(folder)) == []
    assert judge.judged == []
    assert before["checkpoint"]["hall_of_fame"] != ()  # nor is the hall of fame empty


def test_the_seed_is_there_once_however_often_a_run_is_resumed(folder: RunFolder) -> None:
    for generations in (0, 1, 1, 2):
        run_part(small_config(generations=generations), folder)
    births = [candidate.birth for candidate in snapshot(folder)["candidates"]]
    assert births.count(-1) == 1
    assert sorted(births) == births


@pytest.mark.parametrize("damage", [lambda text: "", lambda text: text[: len(text) // 2], lambda text: text[:-2]])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_note(
    folder: RunFolder, whole: RunFolder, damage: Any
) -> None:
    run_part(small_config(generations=3), folder)
    newest = folder.checkpoints / "gen-0003.json"
    newest.write_text(damage(newest.read_text(encoding="utf-8")), encoding="utf-8")
    (folder.checkpoints / "gen-0004.json.77.tmp").write_text("{", encoding="utf-8")
    with open_archive(folder) as archive:
        search = assemble(small_config(), folder, archive, KnobJudge())
        assert search.state.generation == 2
        assert len(search.notes) == 2
        assert any(str(newest) in note for note in search.notes)
        search.run()
    assert differences(snapshot(whole), snapshot(folder)) == []


def test_a_run_without_a_whole_checkpoint_is_refused(folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    for path in folder.checkpoints.iterdir():
        path.write_text("", encoding="utf-8")
    with pytest.raises(CheckpointError, match="no whole checkpoint is left"):
        run_part(small_config(), folder)


def test_without_any_checkpoint_a_search_is_made_again_from_its_archive(folder: RunFolder, whole: RunFolder) -> None:
    run_part(small_config(generations=3), folder)
    for path in folder.checkpoints.iterdir():
        path.unlink()
    run_part(small_config(), folder)
    assert differences(snapshot(whole), snapshot(folder)) == []


def test_an_archive_older_than_its_checkpoint_is_refused(tmp_path: Path, folder: RunFolder) -> None:
    older = create_run_folder(tmp_path, "older")
    run_part(small_config(generations=0), older)
    run_part(small_config(generations=3), folder)
    folder.archive.write_bytes(older.archive.read_bytes())
    with pytest.raises(CheckpointError, match="is not in the archive"):
        run_part(small_config(), folder)


def test_the_last_evaluation_of_a_budget_still_completes_its_generation(folder: RunFolder, tmp_path: Path) -> None:
    """The process may die between that evaluation and the checkpoint."""
    run_part(small_config(generations=1), folder)
    made = len(snapshot(folder)["evaluations"])
    limited = small_config(generations=None, evaluations=made)
    whole = create_run_folder(tmp_path, "whole")
    run_part(limited, whole)
    assert snapshot(whole)["checkpoint"]["generation"] == 1
    (folder.checkpoints / "gen-0001.json").unlink()
    assert run_part(limited, folder).reason == f"evaluation budget reached: {made} of {made}"
    assert differences(snapshot(whole), snapshot(folder)) == []


class Failing:
    """The offline answerer, but for some questions that it cannot be reached for."""

    description = "failing"

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._offline = OfflineAnswerer(rng_seed=0)

    def answer(self, request: Request) -> Reply:
        if request.number in self._numbers:
            raise AnswererError("503", hint="wait", retryable=True)
        return self._offline.answer(request)


def test_a_generation_made_again_may_go_otherwise(folder: RunFolder) -> None:
    """A question that stayed unanswered gets its answer, for the process died before the checkpoint was in place."""
    run_part(small_config(generations=2), folder, answerer=Failing(5, 6))
    assert [attempt.outcome for attempt in snapshot(folder)["attempts"]][5:7] == ["unanswered", "unanswered"]
    (folder.checkpoints / "gen-0002.json").unlink()
    assert run_part(small_config(generations=3), folder).reason == "generation budget reached: 3 of 3"
    attempts = snapshot(folder)["attempts"]
    assert [attempt.number for attempt in attempts] == list(range(12))
    assert "unanswered" not in {attempt.outcome for attempt in attempts}


def test_other_settings_are_refused_by_name(folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    with pytest.raises(ConfigError) as error:
        run_part(small_config(mu=5), folder)
    assert str(error.value) == (
        "resume: this run began with other settings: evolution.mu was 3, now 5; start a new run"
    )


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, folder: RunFolder) -> None:
    other = create_run_folder(tmp_path, "other")
    run_part(small_config(generations=1, mu=5), other)
    run_part(small_config(generations=1), folder)
    (folder.checkpoints / "gen-0002.json").write_bytes((other.checkpoints / "gen-0001.json").read_bytes())
    with pytest.raises(CheckpointError, match="written under other settings"):
        run_part(small_config(), folder)


def test_generators_stand_where_they_stood(folder: RunFolder) -> None:
    run_part(small_config(generations=2), folder)
    saved = load_newest(folder.checkpoints)
    assert saved is not None
    with open_archive(folder) as archive:
        search = assemble(small_config(generations=2), folder, archive, KnobJudge())
        search.keeper.save(search.state)
    again = load_newest(folder.checkpoints)
    assert again is not None
    assert again.checkpoint == saved.checkpoint


def test_a_second_writer_is_kept_out(folder: RunFolder) -> None:
    run_part(small_config(generations=0), folder)
    with open_archive(folder), pytest.raises(Exception, match="is being written by"):
        open_archive(folder)


def test_checkpoints_are_kept_as_configured(whole: RunFolder) -> None:
    names = sorted(path.name for path in whole.checkpoints.iterdir())
    assert names == ["gen-0002.json", "gen-0003.json", "gen-0004.json"]


def test_an_archive_without_a_checkpoint_begins_again(folder: RunFolder, whole: RunFolder) -> None:
    """Killed while the seed was judged: it is there already, and its evaluation too."""
    with create_archive(folder) as archive:
        search = assemble(small_config(), folder, archive, KnobJudge())
        search.toolbox.sow()
    judge = KnobJudge()
    run_part(small_config(), folder, judge)
    assert differences(snapshot(whole), snapshot(folder)) == []
    assert len(judge.judged) == len(snapshot(whole)["evaluations"]) - 1
