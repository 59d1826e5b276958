"""Runs that a signal meets while they begin, and runs whose folder takes no more: one line each, and what to do."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_search import SEED, write_table

UPON = """
import errno, os, signal, sys
left = {times}
def heard(event, arguments):
    global left
    if left and event == {event!r} and {part!r} in str(arguments[0]):
        left -= 1
        {act}
sys.addaudithook(heard)
from evo.cli import main
main()
"""
NO_ROOM = "raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Of a small run on a table of measurements."""
    table = write_table(tmp_path / "table.jsonl.gz", suite="smoke")
    return [
        "evolve", "backend=recorded", f"backend.table={table}", f"seeds=['{SEED}']", "stop.generations=1",
        "evolution.lambda_=2", "name=a",
    ]  # fmt: skip


def evo(
    folder: Path, words: list[str], *, event: str, part: str, act: str, times: int = 9,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The command, which acts upon the first events of Python's whose subject has that part in its name."""
    program = [sys.executable, "-c", UPON.format(event=event, part=part, act=act, times=times)]
    return subprocess.run([*program, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGUSR1", 138)])
def test_a_signal_before_anything_began_leaves_nothing(tmp_path: Path, words: list[str], name: str, code: int) -> None:
    act = f"os.kill(os.getpid(), signal.{name})"
    ended = evo(tmp_path, words, event="os.remove", part="exit.json", act=act, times=1)
    assert (ended.returncode, ended.stderr) == (code, f"evo: interrupted by {name}\n")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_signal_before_the_first_measurement_says_how_to_go_on(tmp_path: Path, words: list[str]) -> None:
    begun = "os.path.exists('runs/a/archive.sqlite')"  # the table is first looked into before there is anything
    act = f"{begun} and os.kill(os.getpid(), signal.SIGTERM)"
    ended = evo(tmp_path, words, event="open", part="table.jsonl.gz", act=act, times=2)
    assert (ended.returncode, ended.stderr) == (143, "evo: interrupted by SIGTERM\n")
    assert ended.stdout.splitlines()[-1] == f"nothing is lost; go on with: evo evolve resume={tmp_path / 'runs' / 'a'}"
    again = evo(tmp_path, ["evolve", "resume=a"], event="none", part="", act="pass")
    assert (again.returncode, again.stderr) == (0, "")


def test_a_disk_without_room_for_a_run_is_told_in_one_line(tmp_path: Path, words: list[str]) -> None:
    ended = evo(tmp_path, words, event="open", part="/.hydra/", act=NO_ROOM)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr
    assert "make room or rights there" in ended.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_without_room_at_the_end_is_told_in_one_line(tmp_path: Path, words: list[str]) -> None:
    ended = evo(tmp_path, words, event="open", part="exit.json.", act=NO_ROOM)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "exit.json" in ended.stderr
    assert "make room or rights there, then resume the run" in ended.stderr
    again = evo(tmp_path, ["evolve", "resume=a"], event="none", part="", act="pass")
    assert (again.returncode, again.stderr) == (0, "")
