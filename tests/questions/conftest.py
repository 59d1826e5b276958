"""Makers of small questions, banks and entries."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from questions.bank import Bank, load_bank, shipped_bank_path
from questions.question import Layer, Moment, Question

QUESTION = Question(
    id="q",
    text="Which buffer waits longest?",
    layer=Layer.MEMORY,
    moments=(Moment.ANY,),
    hypothesis="one buffer is late",
    measurement="cycles waited, by buffer",
    targets=("portable",),
    imperative="Find which buffer waits longest, and change the kernel accordingly.",
    information="Some buffer waits longest.",
    prescription="Add a second buffer.",
)


@pytest.fixture(scope="session")
def make_question() -> Callable[..., Question]:
    return lambda question_id="q", **changes: replace(QUESTION, id=question_id, **changes)


@pytest.fixture(scope="session")
def make_bank() -> Callable[..., Bank]:
    return lambda *questions: Bank(questions=questions)


@pytest.fixture(scope="session")
def shipped_bank() -> Bank:
    return load_bank([shipped_bank_path()])
