"""A search that nobody answers ends, and says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_records import attempt, individual
from small_search import SEED, write_table

from evo.history import History, Outcome
from evo.silence import require_answers
from evo.stop import GivenUp


def history_of(*generations: tuple[Outcome, ...]) -> History:
    history, parent = History(), individual("seed\n", 0)
    history.add_individual(parent)
    number = 0
    for generation, outcomes in enumerate(generations, start=1):
        for outcome in outcomes:
            history.add_attempt(attempt(number, (parent,), None, outcome=outcome, generation=generation))
            number += 1
    return history


def reason_to_end(history: History, generation: int, *, begun_after: int = 0) -> str:
    try:
        require_answers(history, generation, begun_after=begun_after)
    except GivenUp as end:
        return end.reason
    return ""


SILENT = (Outcome.UNANSWERED, Outcome.UNANSWERED)


def test_three_generations_without_a_reply_are_enough() -> None:
    history = history_of((Outcome.UNREADABLE, Outcome.UNANSWERED), SILENT, SILENT, SILENT)
    assert [reason_to_end(history, generation) for generation in (1, 2, 3)] == [""] * 3
    with pytest.raises(GivenUp, match="the answerer gave up: none of 6 questions of 3 generations got a reply"):
        require_answers(history, 4, begun_after=0)


def test_one_reply_is_enough_to_go_on() -> None:
    assert reason_to_end(history_of(SILENT, SILENT, SILENT), 3).startswith("the answerer gave up")
    assert reason_to_end(history_of(SILENT, (Outcome.UNANSWERED, Outcome.UNREADABLE), SILENT), 3) == ""


def test_what_an_earlier_part_of_the_run_met_does_not_count() -> None:
    history = history_of(SILENT, SILENT, SILENT, SILENT)
    assert [reason_to_end(history, generation, begun_after=3) for generation in (3, 4)] == ["", ""]
    assert reason_to_end(history, 4, begun_after=1).startswith("the answerer gave up")


def test_a_server_that_is_not_there_ends_a_run_with_exit_code_2(tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl.gz", suite="smoke")
    words = [
        "evolve", "name=alone", "backend=recorded", "backend.table=table.jsonl.gz", f"seeds=['{SEED}']", "suite=smoke",
        "evolution.lambda_=2", "answerer=openai", "answerer.model=m", "answerer.base_url=http://127.0.0.1:9/v1",
        "answerer.max_retries=0",
    ]  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", "from evo.cli import main; main()", *words], cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False, env={**os.environ, "OPENAI_API_KEY": "sk-none"},
    )  # fmt: skip
    assert ended.returncode == 2
    result = json.loads((tmp_path / "runs" / "alone" / "result.json").read_text())
    assert result["stop_reason"].startswith("the answerer gave up: none of 6 questions of 3 generations got a reply")
    assert result["generations"] == 3
