"""From a parent's moment to the request that an answerer gets."""

import random
from dataclasses import replace

import pytest
from small_records import attempt, failed, individual, known, passed
from small_search import PHRASING, SOURCE, small_bank

from evo.asking import Asker
from evo.history import History
from fitness.evaluation import Status
from fitness.manifest import with_knobs
from population.individual import Individual
from questions.bank import Bank
from questions.question import Moment, Style
from questions.sampler import NoQuestionError, QuestionSampler
from questions.triggers import Thresholds


def asker(history: History, *, style: Style = Style.QUESTION, bank: Bank | None = None) -> Asker:
    sampler = QuestionSampler(bank or small_bank(), random.Random(1), styles=(style,))
    phrasing = replace(PHRASING, style=style)
    return Asker(sampler=sampler, phrasing=phrasing, history=history, thresholds=Thresholds())


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def seed(history: History) -> Individual:
    evaluation = passed("seed", {"b1 s64": 0.8765, "b1 s128": 1.5})
    return known(history, individual(SOURCE, -1), evaluation)


def child(history: History, parent: Individual, number: int, block: int) -> Individual:
    return individual(with_knobs(SOURCE, {"BLOCK_M": block}), number, parent)


def test_the_prompt_holds_the_kernel_its_figures_and_exactly_one_question(history: History, seed: Individual) -> None:
    asked = asker(history).ask((seed,), number=4, generation=2)
    request = asker(history).request(asked, attempt=0)
    assert (request.number, request.attempt, request.parent_sources) == (4, 0, (seed.source,))
    assert request.layer == asked.question.layer
    assert seed.source.strip() in request.prompt
    assert "| b1 s64 | 1.1409 | 1.0000 | 0.876 (worst) |" in request.prompt
    assert "Measured on test device beside sdpa." in request.prompt
    assert request.prompt.count("Question: ") == 1
    assert request.prompt.count(asked.hint) == 1
    others = [question.text for question in small_bank() if question.id != asked.question.id]
    assert not any(text in request.prompt for text in others)


def test_a_slot_is_filled_from_the_parents_measurement(history: History, seed: Individual) -> None:
    only = Bank(questions=(small_bank().by_id("stages-in-flight"),))
    asked = asker(history, bank=only).ask((seed,), number=0, generation=1)
    assert asked.hint == "In b1 s64, how long does a product wait for its tile?"


def test_the_last_failure_and_its_reason_reach_the_prompt(history: History, seed: Individual) -> None:
    dead = child(history, seed, 0, 128)
    known(history, dead, failed(dead.source, Status.COMPILE_ERROR, "candidate.cu(7): error: {braces} stay"))
    history.add_attempt(attempt(0, (seed,), dead, detail="taller blocks"))
    asking = asker(history)
    asked = asking.ask((seed,), number=1, generation=1)
    prompt = asking.request(asked, attempt=0).prompt
    assert asked.trigger.moment is Moment.COMPILE_FAILURE
    assert asked.hint.endswith("candidate.cu(7): error: {braces} stay?")
    assert "- COMPILE_ERROR (candidate.cu(7): error: {braces} stay): taller blocks" in prompt
    assert "# What the compiler said\n\n```text\ncandidate.cu(7): error: {braces} stay\n```" in prompt


def test_a_re_ask_quotes_the_error_and_changes_nothing_else(history: History, seed: Individual) -> None:
    asking = asker(history)
    asked = asking.ask((seed,), number=0, generation=1)
    first = asking.request(asked, attempt=0)
    again = asking.request(asked, attempt=1, reply_error="the fence never closes")
    assert "the fence never closes" not in first.prompt
    assert again.prompt.count("the fence never closes") == 1
    assert (again.number, again.attempt, again.layer) == (0, 1, first.layer)
    assert set(first.prompt.splitlines()) <= set(again.prompt.splitlines())


def test_two_parents_make_a_crossover(history: History, seed: Individual) -> None:
    other = child(history, seed, 0, 64)
    known(history, other, passed(other.source, {"b1 s64": 1.0, "b1 s128": 1.0}))
    asked = asker(history).ask((seed, other), number=3, generation=1)
    assert (asked.operator, asked.question.id, asked.trigger.moment) == ("crossover", "best-of-both", Moment.CROSSOVER)
    request = asker(history).request(asked, attempt=0)
    assert request.parent_sources == (seed.source, other.source)
    assert other.source.strip() in request.prompt


def test_a_question_that_was_asked_on_the_line_waits_for_the_others(history: History, seed: Individual) -> None:
    fitting = {"block-shape", "stages-in-flight", "unrolling", "width-of-loads"}
    asking, seen = asker(history), set()
    for number in range(4):
        asked = asking.ask((seed,), number=number, generation=1)
        seen.add(asked.question.id)
        history.add_attempt(replace(attempt(number, (seed,), None), question_id=asked.question.id))
    assert seen == fitting


@pytest.mark.parametrize(
    ("style", "hint"),
    [
        (Style.QUESTION, "How many bytes does one load bring?"),
        (Style.IMPERATIVE, "Count the bytes that one load brings."),
        (Style.INFORMATION, "One load brings some bytes."),
        (Style.OPEN, "Make this kernel faster."),
        (Style.BARE, ""),
    ],
)
def test_the_style_decides_on_the_hint_alone(history: History, seed: Individual, style: Style, hint: str) -> None:
    only = Bank(questions=(small_bank().by_id("width-of-loads"),))
    asked = asker(history, style=style, bank=only).ask((seed,), number=0, generation=1)
    assert (asked.hint, asked.style) == (hint, style)


def test_a_bank_without_a_fitting_question_is_told_of(history: History, seed: Individual) -> None:
    only = Bank(questions=(replace(small_bank().by_id("width-of-loads"), targets=("sm_90a",)),))
    with pytest.raises(NoQuestionError, match="none of the bank's 1 questions fits"):
        asker(history, bank=only).ask((seed,), number=0, generation=1)
