import pytest

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.answerers.replay import ReplayAnswerer

USAGE = Usage(prompt_tokens=3, completion_tokens=4, cost_usd=0.25, estimated=True)
FIRST = Reply(text="one\n\u00e9 {}", model="m", finish_reason="length", usage=USAGE, used_tools=True)
SECOND = Reply(text="two", model="n")


def request(number: int, attempt: int = 0) -> Request:
    return Request(number=number, attempt=attempt, prompt="whatever", layer="memory", parent_sources=("x",))


def test_recorded_replies_are_served_by_number_and_attempt():
    replies = {(7, 0): FIRST, (7, 1): SECOND}
    answerer = ReplayAnswerer(lambda number, attempt: replies.get((number, attempt)), origin="runs/old")
    assert answerer.answer(request(7, attempt=1)) == SECOND
    assert answerer.answer(request(7)) == FIRST
    assert answerer.description == "replay: recorded replies from runs/old, by the number of the question"


def test_a_reply_that_was_not_recorded_is_an_error_for_good():
    with pytest.raises(AnswererError, match="runs/old has no reply to question 8, attempt 1") as caught:
        ReplayAnswerer(lambda *_: None, origin="runs/old").answer(request(8, attempt=1))
    assert not caught.value.retryable
