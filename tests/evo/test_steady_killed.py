"""A steady search that is killed by kill -9 uses, once gone on with, all that it had recorded, and comes to its end."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from killed_steady import LIMITS
from small_search import KnobJudge, snapshot
from small_steady import Counting, go, require_sound, steady

from population.individual import individual_id
from population.run_folder import RunFolder

MORTAL = """
import os, re, signal, sys
left = int(sys.argv.pop(1))
def heard(event, arguments):
    global left
    if event in ("open", "os.rename") and re.search("/killed/(kernels|checkpoints)/", str(arguments[0])):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(heard)
from evo.cli import main
main()
"""  # lives until it has begun so many times to write a kernel or a checkpoint, or to put one in place
FOR_EVER = 10**9
SHAPE = "{batch:1,heads:1,seqlen_q:32,head_dim:64,causal:true}"


def evolve(folder: Path, *words: str, life: int = FOR_EVER) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MORTAL, str(life), "evolve", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def kept(seen: dict[str, Any]) -> dict[str, dict[Any, Any]]:
    """What was paid for, by what it is of."""
    return {
        "evaluations": dict(seen["evaluations"]),
        "replies": {(number, attempt): text for number, attempt, text in seen["replies"]},
    }


def require_whole(seen: dict[str, Any], result: dict[str, Any], evaluations: int) -> None:
    """What holds of a run whose budget of evaluations is spent, however often it was killed."""
    judged = Counter(name for name, _ in seen["evaluations"])
    assert (len(judged), set(judged.values())) == (evaluations, {1})
    assert (result["evaluations"], result["stop_reason"]) == (
        evaluations, f"evaluation budget reached: {evaluations} of {evaluations}",
    )  # fmt: skip
    numbers = [attempt.number for attempt in seen["attempts"]]
    assert len(set(numbers)) == len(numbers)
    children = [attempt.child_id for attempt in seen["attempts"] if attempt.child_id]
    assert set(children) == set(judged) - {result["seed"]["id"]}
    assert {member["id"] for member in seen["checkpoint"]["population"]} <= set(judged)
    speeds = {name: record["geomean"] for name, record in seen["evaluations"] if record["status"] == "PASSED"}
    assert result["best"]["geomean"] == max(speeds.values())


def test_a_kill_at_any_moment_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    program = Path(__file__).parent / "killed_steady.py"
    said = subprocess.run([sys.executable, str(program), str(tmp_path), "12"], capture_output=True, check=True)
    killed = json.loads(said.stdout)
    assert len(killed) >= 12
    for moment in killed:
        folder = RunFolder(tmp_path / f"killed-{moment}")
        before = kept(snapshot(folder))
        judge, answerer = KnobJudge(), Counting()
        assert go(steady(**LIMITS), folder, judge, answerer).reason == "generation budget reached: 4 of 4"
        after = kept(require_sound(folder))
        assert all(before[what].items() <= after[what].items() for what in before), killed[moment]
        assert before["replies"].keys().isdisjoint(answerer.asked)
        assert before["evaluations"].keys().isdisjoint(map(individual_id, judge.judged))


def test_a_search_that_measures(tmp_path: Path) -> None:
    words = [
        "name=killed", "evolution=steady", "evolution.lambda_=2", "backend=host", f"backend.cache={tmp_path}/cache",
        "suite.name=one", f"suite.scenarios=[{SHAPE}]", "suite.edges=false", "judge.repeats=1", "stop.evaluations=5",
        "audit=false",
    ]  # fmt: skip
    run = RunFolder(tmp_path / "runs" / "killed")
    assert evolve(tmp_path, *words, life=15).returncode == -signal.SIGKILL
    before = kept(snapshot(run))
    assert before["evaluations"]
    resumed = evolve(tmp_path, "resume=killed")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    seen = snapshot(run)
    assert all(before[what].items() <= kept(seen)[what].items() for what in before)
    require_whole(seen, json.loads(run.result.read_text(encoding="utf-8")), evaluations=5)
