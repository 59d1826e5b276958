"""A steady search of one question at a time ends as if nothing had happened, whenever it was interrupted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_search import KnobJudge, snapshot
from small_steady import Counting, go, one_by_one, require_sound, steady

from population.individual import individual_id
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
    whole = snapshot(RunFolder(root / "whole"))
    assert whole["checkpoint"]["generation"] == 4
    for moment, kind in killed.items():
        folder = RunFolder(root / f"killed-{moment}")
        before = snapshot(folder)
        judge, answerer = KnobJudge(), Counting(rng_seed=rng_seed)
        assert go(one_by_one(rng_seed), folder, judge, answerer).reason == "generation budget reached: 4 of 4"
        after = require_sound(folder)
        assert [key for key in whole if whole[key] != after[key]] == [], f"killed at moment {moment}, {kind}"
        assert {(number, attempt) for number, attempt, _ in before["replies"]}.isdisjoint(answerer.asked)
        assert {name for name, _ in before["evaluations"]}.isdisjoint(map(individual_id, judge.judged))


def test_runs_killed_anywhere_end_as_the_whole_one_does(tmp_path: Path) -> None:
    require_the_same_end(tmp_path, 24)


@pytest.mark.soak
@pytest.mark.parametrize("rng_seed", range(1, 6))
def test_runs_killed_at_a_hundred_random_moments_end_as_the_whole_one_does(tmp_path: Path, rng_seed: int) -> None:
    require_the_same_end(tmp_path, 100, rng_seed)
