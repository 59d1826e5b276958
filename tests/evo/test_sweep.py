"""Sweeps: a run for each combination, told apart, and gone on with where they were cut off."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_search import SEED, snapshot, write_table

from evo.settings import ConfigError
from evo.sweep import (
    EXIT_FILE,
    JobState,
    combinations,
    create_sweep,
    exit_code,
    is_sweep,
    open_sweep,
    require_launcher,
    split_words,
    summary,
    to_do,
)
from population.archive_lock import ArchiveLock
from population.run_folder import RunFolder

PROGRAM = [sys.executable, "-c", "from evo.cli import main; main()"]
MORTAL = """
import os, signal, sys
def heard(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("/1/checkpoints/gen-0001.json"):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(heard)
from evo.cli import main
main()
"""  # dies while the second job's second checkpoint is put in place


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a small run on a table of measurements."""
    table = write_table(tmp_path_factory.mktemp("table") / "table.jsonl.gz", suite="smoke")
    return [
        "backend=recorded", f"backend.table={table}", f"seeds=['{SEED}']", "stop.generations=2", "evolution.lambda_=2"
    ]  # fmt: skip


def evo(folder: Path, *words: str, program: str | None = None) -> subprocess.CompletedProcess[str]:
    command = PROGRAM if program is None else [sys.executable, "-c", program]
    return subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def found(folder: Path) -> dict[str, Any]:
    """What a job left behind, but for its clock."""
    seen = snapshot(RunFolder(folder))
    seen["checkpoint"]["counters"].pop("elapsed_ms")
    return seen


def test_jobs_are_all_combinations_and_words_of_hydra_are_no_jobs() -> None:
    own, launch = split_words(
        ["a=1,2", "hydra/launcher=joblib", "b=x", "style=question,open", "hydra.launcher.n_jobs=2"]
    )
    assert launch == ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert combinations(own) == [
        ["a=1", "b=x", "style=question"],
        ["a=1", "b=x", "style=open"],
        ["a=2", "b=x", "style=question"],
        ["a=2", "b=x", "style=open"],
    ]
    assert combinations(["rng_seed=range(3)"]) == [["rng_seed=0"], ["rng_seed=1"], ["rng_seed=2"]]
    with pytest.raises(ConfigError, match="a sweep needs values that can be counted"):
        combinations(["questions.noise=interval(0,1)"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hydra/launcher=joblib", "not installed; install it with: pip install hydra-joblib-launcher"),
        ("hydra/launcher=submitit_slurm", "not installed; install it with: pip install hydra-submitit-launcher"),
        ("hydra/sweeper=optuna", "a sweep here goes through all combinations of the values; leave it out"),
    ],
)
def test_what_cannot_launch_is_said_before_anything_is_made(word: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        require_launcher(["rng_seed=1,2", word], find=lambda _module: None)
    assert str(error.value) == f"{word}: {said}"
    require_launcher(["hydra/launcher=basic", "hydra/launcher=joblib"], find=lambda _module: "there")


def test_two_sweeps_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    first, second = (create_sweep(tmp_path, "same", ["rng_seed=0,1"]) for _ in range(2))
    assert (first.path.name, second.path.name) == ("same", "same-2")
    assert [job.path.name for job in first.jobs()] == ["0", "1"]
    assert sorted(path.name for path in first.path.iterdir()) == ["0", "1", "sweep.json"]


def test_a_sweep_is_found_again_as_it_was(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, "s", [f"rng_seed={','.join(map(str, range(12)))}", "hydra/launcher=joblib"])
    assert open_sweep(made.path) == made
    assert [job.path.name for job in made.jobs()] == [str(number) for number in range(12)]
    assert [row.overrides for row in made.rows()] == [(f"rng_seed={number}",) for number in range(12)]
    assert {row.state for row in made.rows()} == {JobState.NOT_STARTED}


def test_what_is_no_sweep_is_refused_as_one(tmp_path: Path) -> None:
    assert not is_sweep(tmp_path)
    with pytest.raises(ConfigError, match="no sweep is there"):
        open_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        open_sweep(tmp_path)


def ended(folder: RunFolder, code: int, reason: str) -> None:
    (folder.path / EXIT_FILE).write_text(json.dumps({"exit_code": code}), encoding="utf-8")
    best = {"geomean": 1.5} if code == 0 else None
    folder.result.write_text(json.dumps({"stop_reason": reason, "best": best}), encoding="utf-8")


def test_how_jobs_stand_decides_which_are_launched_again(tmp_path: Path) -> None:
    sweep = create_sweep(tmp_path, "s", ["rng_seed=range(7)"])
    good, barren, given_up, struck, cut, running, _ = sweep.jobs()
    ended(good, 0, "generation budget reached: 2 of 2")
    ended(barren, 1, "no seed passed, so there is nothing to ask about")
    ended(given_up, 2, "the answerer gave up: 401")
    ended(struck, 143, "interrupted by SIGTERM")
    cut.archive.touch()
    with ArchiveLock(running):
        rows = sweep.rows()
    assert [str(row.state) for row in rows] == [
        "finished", "finished", "failed", "interrupted", "interrupted", "running", "not started",
    ]  # fmt: skip
    assert [job.path.name for job in to_do(rows, all_of_them=False)] == ["2", "3", "4", "6"]
    assert [job.path.name for job in to_do(rows, all_of_them=True)] == ["0", "1", "2", "3", "4", "6"]
    assert list(summary(rows[:4])) == [
        "job  state        exit  best    overrides",
        "0    finished     0     1.5000  rng_seed=0",
        "1    finished     1     –       rng_seed=1",
        "2    failed       2     –       rng_seed=2",
        "3    interrupted  143   –       rng_seed=3",
    ]


def test_what_a_sweep_varies_cannot_be_set_when_it_is_gone_on_with(tmp_path: Path) -> None:
    sweep = create_sweep(tmp_path, "s", ["rng_seed=0,1", "stop.generations=2"])
    with pytest.raises(ConfigError, match="resume: rng_seed is what this sweep varies"):
        sweep.add_words(["rng_seed=3"])
    sweep.add_words(["stop.generations=4"])
    assert [row.overrides for row in sweep.rows()] == [("rng_seed=0",), ("rng_seed=1",)]


def test_a_killed_sweep_ends_as_an_uninterrupted_one(tmp_path: Path, words: list[str]) -> None:
    swept = [*words, "-m", "rng_seed=0,1,2"]
    whole = evo(tmp_path, "evolve", "name=whole", *swept)
    assert whole.returncode == 0
    killed = evo(tmp_path, "evolve", "name=killed", *swept, program=MORTAL)
    assert killed.returncode == -signal.SIGKILL
    sweep = open_sweep(tmp_path / "runs" / "killed")
    assert [str(row.state) for row in sweep.rows()] == ["finished", "interrupted", "not started"]
    first = (sweep.path / "0" / "result.json").stat().st_mtime_ns
    resumed = evo(tmp_path, "evolve", "-m", "resume=killed")
    assert resumed.returncode == 0
    assert (sweep.path / "0" / "result.json").stat().st_mtime_ns == first  # what is finished is left alone
    for number in range(3):
        assert found(sweep.path / str(number)) == found(tmp_path / "runs" / "whole" / str(number))
    assert resumed.stdout.splitlines()[-3:] == whole.stdout.splitlines()[-3:]
    again = evo(tmp_path, "evolve", "-m", "resume=runs/killed")
    assert (again.returncode, again.stdout.splitlines()[-3:]) == (0, whole.stdout.splitlines()[-3:])
    before = [str(row.state) for row in sweep.rows()]
    less = evo(tmp_path, "evolve", "-m", "resume=killed", "stop.evaluations=1")
    assert less.returncode == 2
    assert less.stderr.startswith("evo: job 0: stop.evaluations=1: this run has made ")
    assert [str(row.state) for row in open_sweep(sweep.path).rows()] == before == ["finished"] * 3
    again = evo(tmp_path, "evolve", "-m", "resume=killed")
    assert (again.returncode, again.stdout.splitlines()[-3:]) == (0, whole.stdout.splitlines()[-3:])
    refused = evo(tmp_path, "evolve", "resume=killed")
    assert (refused.returncode, refused.stderr) == (2, "evo: runs/killed: this is a sweep; to go on with it, add -m\n")


def test_jobs_run_in_parallel_and_one_that_fails_ends_no_other(tmp_path: Path, words: list[str]) -> None:
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    asked = ["-m", "answerer=replay,offline", "answerer.replay_from=nowhere"]
    swept = evo(tmp_path, "evolve", "name=s", *words, *launcher, *asked)
    sweep = open_sweep(tmp_path / "runs" / "s")
    assert [exit_code(job) for job in sweep.jobs()] == [2, 0]
    assert swept.returncode == 2
    assert sweep.launch == tuple(launcher)
    assert swept.stderr == "evo: nowhere: no such run; expected the folder of a run, such as runs/first-try\n"
    assert "stopped: generation budget reached: 2 of 2" in (sweep.path / "1" / "story.txt").read_text(encoding="utf-8")
    more = evo(tmp_path, "evolve", "-m", "resume=s", "stop.generations=3")  # by the launcher that it began with
    assert "Joblib.Parallel(n_jobs=2" in more.stdout
    assert json.loads((sweep.path / "1" / "result.json").read_text(encoding="utf-8"))["generations"] == 3
