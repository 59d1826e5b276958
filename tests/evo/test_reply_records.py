"""Replies in the archive: with the calls of tools that led to them, or not at all; and what was paid for in vain."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evo.answerers.answerer import AnswererError, Reply, Request, ToolCall, Usage
from evo.reply_records import TOOL_CALL_EVENT, keep_reply, keep_unanswered, spent_on_request, to_reply
from population.archive import Archive, create_archive
from population.atomic_file import parse_json
from population.run_folder import create_run_folder

REQUEST = Request(number=7, attempt=1, prompt="why?", layer="memory", parent_sources=("x",))
CALLS = (
    ToolCall(order=0, name="measure", arguments='{"draft": "\ud800"}', result="PASSED", seconds=1.5),
    ToolCall(order=1, name="profile", arguments="", result="not available", seconds=0.25),
)
USAGE = Usage(prompt_tokens=20, completion_tokens=10, cost_usd=0.5, estimated=True)
REPLY = Reply(text="text \ud800", model="m", usage=USAGE, used_tools=True, tool_calls=CALLS)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


def calls_in(archive: Archive) -> list[dict[str, Any]]:
    return [parse_json(event.record) for event in archive.events() if event.kind == TOOL_CALL_EVENT]


def failure(usage: Usage, calls: tuple[ToolCall, ...] = ()) -> AnswererError:
    error = AnswererError("gone", hint="wait", retryable=True)
    error.usage, error.tool_calls = usage, calls
    return error


def test_a_reply_is_kept_with_its_calls_and_what_they_took(archive: Archive) -> None:
    kept = keep_reply(archive, REQUEST, REPLY)
    assert kept == replace(REPLY, text="text ?")
    assert [to_reply(record) for record in archive.replies()] == [replace(kept, tool_calls=())]
    assert calls_in(archive) == [
        {"number": 7, "attempt": 1, "order": 0, "name": "measure", "arguments": '{"draft": "\ud800"}',
         "result": "PASSED", "seconds": 1.5},
        {"number": 7, "attempt": 1, "order": 1, "name": "profile", "arguments": "", "result": "not available",
         "seconds": 0.25},
    ]  # fmt: skip
    spent = {"prompt_tokens": 20, "completion_tokens": 10, "cost_usd": 0.5, "tool_s": 1.75}
    assert archive.spend_so_far() == spent
    assert keep_reply(archive, REQUEST, replace(REPLY, text="another")).text == "text ?"  # the first one stays
    assert len(calls_in(archive)) == 2
    assert archive.spend_so_far() == spent


def test_a_reply_and_its_calls_are_kept_together_or_not_at_all(archive: Archive) -> None:
    class FullDisk:
        def __getattr__(self, name: str) -> object:
            return getattr(archive, name)

        def record_event(self, record: object) -> None:
            raise OSError("no space left on device")

    broken: Any = FullDisk()
    with pytest.raises(OSError, match="no space"):
        keep_reply(broken, REQUEST, REPLY)
    assert list(archive.replies()) == []
    assert keep_reply(broken, REQUEST, replace(REPLY, tool_calls=())).text == "text ?"


def test_what_brought_no_reply_is_paid_for_each_time(archive: Archive) -> None:
    for _ in range(2):
        keep_unanswered(archive, REQUEST, failure(USAGE, CALLS))
    assert archive.spend_so_far() == {
        "prompt_tokens": 40, "completion_tokens": 20, "cost_usd": 1.0, "tool_s": 3.5,
    }  # fmt: skip
    assert len(calls_in(archive)) == 4
    keep_reply(archive, REQUEST, REPLY)
    assert archive.spend_so_far()["cost_usd"] == 1.5
    assert len(calls_in(archive)) == 6


def test_what_cost_nothing_leaves_nothing(archive: Archive) -> None:
    keep_unanswered(archive, REQUEST, failure(Usage()))
    keep_reply(archive, REQUEST, Reply(text="text", model="m"))
    assert list(archive.spend()) == []
    assert calls_in(archive) == []


def test_what_was_spent_on_a_request_says_on_which(archive: Archive) -> None:
    keep_unanswered(archive, REQUEST, failure(USAGE, CALLS))
    assert {spent_on_request(record.key) for record in archive.spend()} == {(7, 1)}
    assert spent_on_request("rent of 3/4, 5") is None
