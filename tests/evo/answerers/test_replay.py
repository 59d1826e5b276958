import pytest

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.answerers.replay import ReplayAnswerer, read_replies, reply_line

USAGE = Usage(prompt_tokens=3, completion_tokens=4, cost_usd=0.25, estimated=True)
FIRST = Reply(text="one\n\u00e9 {}", model="m", finish_reason="length", usage=USAGE, used_tools=True)
SECOND = Reply(text="two", model="n")


def request(number: int, attempt: int = 0) -> Request:
    return Request(number=number, attempt=attempt, prompt="whatever", layer="memory", parent_sources=("x",))


def test_recorded_replies_are_served_by_number_and_attempt(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text(reply_line(7, 0, FIRST) + "\n" + reply_line(7, 1, SECOND), encoding="utf-8")
    replies = read_replies(path)
    answerer = ReplayAnswerer(lambda number, attempt: replies.get((number, attempt)), origin="runs/old")
    assert answerer.answer(request(7, attempt=1)) == SECOND
    assert answerer.answer(request(7)) == FIRST
    assert answerer.description == "replay: recorded replies from runs/old, by the number of the question"


def test_a_reply_that_was_not_recorded_is_an_error_for_good():
    with pytest.raises(AnswererError, match="runs/old has no reply to question 8, attempt 1") as caught:
        ReplayAnswerer(lambda *_: None, origin="runs/old").answer(request(8, attempt=1))
    assert not caught.value.retryable


def test_a_later_line_replaces_an_earlier_one(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text(reply_line(1, 0, FIRST) + reply_line(1, 0, SECOND), encoding="utf-8")
    assert read_replies(path) == {(1, 0): SECOND}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "5",
        "{}",
        '{"number": 1, "attempt": 0, "model": "m"}',
        '{"number": 1, "attempt": 0, "model": "m", "text": null}',
        '{"number": "1", "attempt": 0, "model": "m", "text": "x"}',
        '{"number": 1, "attempt": true, "model": "m", "text": "x"}',
        '{"number": 1, "attempt": 0, "model": "m", "text": "x", "usage": {"cost": 1}}',
        '{"number": 1, "attempt": 0, "model": "m", "text": "x", "usage": null}',
    ],
)
def test_a_line_that_is_no_reply_is_named(tmp_path, line):
    path = tmp_path / "replies.jsonl"
    path.write_text(reply_line(1, 0, FIRST) + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"replies\.jsonl, line 2: it is no recorded reply"):
        read_replies(path)


def test_a_cost_that_is_no_number_is_never_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        reply_line(1, 0, Reply(text="x", model="m", usage=Usage(cost_usd=float("nan"))))
