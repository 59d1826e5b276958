"""What a person reads of a run."""

import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_records import attempt, failed, individual, passed

from evo.choices import Choice
from evo.console import RunConsole, evaluation_table, head_grid, open_console, plain_console, result_lines
from evo.history import Outcome
from evo.tracking import Tracker
from fitness.evaluation import Status
from population.archive import Archive, create_archive
from population.run_folder import create_run_folder

RESULT: dict[str, Any] = {
    "stop_reason": "evaluation budget reached: 3 of 3",
    "baseline": {"name": "sdpa", "version": "2.0"},
    "seed": {"id": "k1", "geomean": 0.5},
    "best": {"id": "k2", "geomean": 0.75, "worst_scenario": "x", "worst_speedup": 0.25, "audit": "passed in part",
             "audit_made": ["new inputs", "clocks"],
             "audit_left_out": {"memcheck": "skipped: not here", "racecheck": "skipped: not here"}},
}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


def voice(*, terminal: bool = False) -> tuple[RunConsole, io.StringIO]:
    said = io.StringIO()
    return RunConsole(console=Console(file=said, width=120, force_terminal=terminal), budget=5), said


def test_the_head_says_what_was_chosen_and_why() -> None:
    speaking, said = voice()
    speaking.head([Choice(what="backend", value="host [x]", why="no GPU")], "runs/a")
    assert [line.split() for line in said.getvalue().splitlines()] == [
        ["backend", "host", "[x]", "no", "GPU"],
        ["run:", "runs/a"],
    ]


def test_each_evaluation_tells_what_was_asked_what_was_changed_and_what_came_of_it(archive: Archive) -> None:
    speaking, said = voice()
    tracker = Tracker(archive=archive, earlier_s=0.0)
    seed, wrong = passed("k1", {"x": 0.5}), failed("k2", Status.INCORRECT, "wrong by [1]\nand more")
    tracker.judged(seed)
    speaking.judged("k1", seed, tracker, None, None)
    speaking.generation(0, tracker)
    asked = attempt(7, (individual("k1", -1),), individual("k2", 0), detail="wider tiles\nand more")
    tracker.judged(wrong)
    speaking.judged("k2", wrong, tracker, asked, None)
    faster = passed("k3", {"x": 0.6})
    tracker.judged(faster)
    speaking.judged("k3", faster, tracker, replace(asked, hint=""), 1.2)
    speaking.generation(1, tracker)
    assert said.getvalue().splitlines() == [
        "evaluation 1: seed k1  0.5000 ×",
        "generation 0: best 0.5000 ×  evaluations 1  spend 0.00 USD",
        f"evaluation 2, question 7: {asked.hint}",
        "      wider tiles → k2  INCORRECT  wrong by [1]",
        "evaluation 3, question 7: no hint",
        "      wider tiles → k3  0.6000 ×, 1.20 × its parent",
        "generation 1: best 0.6000 ×  evaluations 3, failed: 1 INCORRECT  spend 0.00 USD",
    ]


def test_childless_questions_are_told_of_but_for_duplicates(archive: Archive) -> None:
    speaking, said = voice()
    seed = individual("seed", -1)
    speaking.childless(attempt(4, (seed,), None, detail="the fence never closes"))
    speaking.childless(attempt(5, (seed,), seed, outcome=Outcome.DUPLICATE, detail="judged before"))
    speaking.childless(attempt(6, (seed,), individual("child", 6, seed), detail="wider"))
    assert said.getvalue() == "question 4: unreadable: the fence never closes\n"
    speaking.generation(1, Tracker(archive=archive, earlier_s=0.0))
    assert "evaluations 0  questions without a new kernel: 1 unreadable, 1 duplicate  spend" in said.getvalue()


def test_after_a_resume_failures_stand_beside_the_evaluations_that_they_are_of(archive: Archive) -> None:
    speaking, said = voice()
    tracker, seed = Tracker(archive=archive, earlier_s=0.0), individual("seed", -1)
    tracker.recall([0.5, 0.0, 0.6])  # what an earlier part told of
    speaking.generation(1, tracker)
    for name, evaluation in (("k4", failed("k4", Status.INCORRECT, "wrong")), ("k5", passed("k5", {"x": 0.4}))):
        tracker.judged(evaluation)
        speaking.judged(name, evaluation, tracker, None, None)
    speaking.childless(attempt(9, (seed,), seed, outcome=Outcome.DUPLICATE, detail="judged before"))
    speaking.generation(2, tracker)
    told = [line for line in said.getvalue().splitlines() if line.startswith("generation ")]
    assert told == [
        "generation 1: best 0.6000 ×  evaluations 3; since the resume 0  spend 0.00 USD",
        "generation 2: best 0.6000 ×  evaluations 5; since the resume 2, failed: 1 INCORRECT  "
        "questions without a new kernel: 1 duplicate  spend 0.00 USD",
    ]


def test_a_terminal_gets_a_live_line(archive: Archive) -> None:
    speaking, said = voice(terminal=True)
    tracker, evaluation = Tracker(archive=archive, earlier_s=0.0), passed("k1", {"x": 0.5})
    tracker.judged(evaluation)
    with speaking.live():
        speaking.judged("k1", evaluation, tracker, None, None)
        speaking.generation(0, tracker)
    assert "seed k1  0.5000 ×" in said.getvalue()
    assert "generation 0" not in said.getvalue()
    assert "evaluations 1" in said.getvalue()


def test_the_last_words_agree_with_the_result() -> None:
    assert result_lines(RESULT) == [
        "stopped: evaluation budget reached: 3 of 3",
        "seed k1: 0.5000 × sdpa (geometric mean)",
        "best k2: 0.7500 × sdpa, 1.50 × the seed",
        "its worst scenario: x at 0.2500 ×",
        "its audit: passed in part (new inputs, clocks); skipped: memcheck, racecheck (not here)",
    ]
    assert result_lines(RESULT | {"seed": None, "best": None}) == [
        "stopped: evaluation budget reached: 3 of 3",
        "no candidate passed",
    ]


def test_farewell_says_how_to_go_on_only_where_there_is_more() -> None:
    speaking, said = voice()
    speaking.farewell(RESULT, passed("k2", {"x": 0.25, "y": 2.25}), "runs/a", resumable=True)
    assert said.getvalue().splitlines()[-2:] == [
        "result: runs/a/result.json",
        "nothing is lost; go on with: evo evolve resume=runs/a",
    ]
    speaking, said = voice()
    speaking.farewell(RESULT | {"best": None}, None, "runs/a", resumable=False)
    assert said.getvalue().endswith("no candidate passed\nresult: runs/a/result.json\n")


def test_a_note_is_found_in_the_log_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    speaking, said = voice()
    speaking.note("the audit of k1: passed")
    assert said.getvalue() == "the audit of k1: passed\n"
    assert caplog.messages == ["the audit of k1: passed"]


def test_the_table_has_a_row_a_scenario_and_the_mean() -> None:
    evaluation = replace(passed("k", {"x": 0.5, "y": 2.0}))
    said = io.StringIO()
    Console(file=said, width=120).print(evaluation_table(evaluation, 120))
    rows = [[word for word in line.split() if word[0] not in "│┃┏┡└├━─┛"] for line in said.getvalue().splitlines()]
    assert ["x", "1.0000", "2.0000", "0.5000", "0.500–0.500"] in rows
    assert ["y", "1.0000", "0.5000", "2.0000", "2.000–2.000"] in rows
    assert ["geometric", "mean", "1.0000"] in rows
    assert "tiny on test device (recorded)" in said.getvalue()


def test_a_narrow_terminal_shows_every_figure_whole_and_leaves_the_intervals_out() -> None:
    said = io.StringIO()
    evaluation = passed("k", {"b4 h32/8 s512x8192 d128 causal bf16": 0.5, "y": 2.0})
    Console(file=said, width=80).print(evaluation_table(evaluation, 80))
    assert "…" not in said.getvalue()
    assert "0.5000" in said.getvalue()
    assert "interval" not in said.getvalue()


def test_a_path_is_never_broken_in_two() -> None:
    said = io.StringIO()
    folder = f"runs/{'deep/' * 40}"
    RunConsole(console=Console(file=said, width=80), budget=None).head([], folder)
    assert f"run: {folder}\n" in said.getvalue()


def test_a_grid_takes_any_text() -> None:
    said = io.StringIO()
    Console(file=said, width=60).print(head_grid([], [("kernel", f"[red]{'long' * 30}.cu")]))
    assert "".join(said.getvalue().split()) == f"kernel[red]{'long' * 30}.cu"


def test_what_goes_to_a_pipe_or_a_file_is_neither_broken_nor_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "runs/" + "a long name/" * 30
    open_console().print(head_grid([], [("run", path)]))
    with plain_console(tmp_path / "story.txt") as console:
        console.print(head_grid([], [("run", path)]))
    for said in (capsys.readouterr().out, (tmp_path / "story.txt").read_text()):
        assert [" ".join(line.split()) for line in said.splitlines()] == [f"run {path}"]


def test_what_a_model_says_steers_no_terminal(archive: Archive) -> None:
    speaking, said = voice(terminal=True)
    speaking.childless(attempt(3, (individual("k1", -1),), None, detail="no \x1b]0;you\x07"))
    assert "no ?]0;you?" in said.getvalue()
    assert "\x1b]" not in said.getvalue()
