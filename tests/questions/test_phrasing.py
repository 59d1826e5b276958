import pytest

from questions.phrasing import has_phrasing, phrase
from questions.question import Style


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (Style.QUESTION, "Why does it stop at 0.9?"),
        (Style.IMPERATIVE, "Find why it stops at 0.9."),
        (Style.INFORMATION, "It stops at 0.9."),
        (Style.PRESCRIPTION, "Move 0.9 up."),
        (Style.OPEN, "Make this kernel faster."),
        (Style.BARE, ""),
    ],
)
def test_each_style(make_question, style, text):
    question = make_question(
        text="Why does it stop at {worst_speedup}?",
        imperative="Find why it stops at {worst_speedup}.",
        information="It stops at {worst_speedup}.",
        prescription="Move {worst_speedup} up.",
    )
    assert phrase(question, style, {"worst_speedup": "0.9"}) == text


def test_a_missing_prescription_has_no_stand_in(make_question):
    question = make_question("only-asked", prescription=None)
    assert [style for style in Style if not has_phrasing(question, style)] == [Style.PRESCRIPTION]
    with pytest.raises(ValueError, match="question only-asked has no prescription"):
        phrase(question, Style.PRESCRIPTION, {})


def test_an_open_hint_needs_no_slots(make_question):
    question = make_question(text="Why {gain}?")
    assert phrase(question, Style.OPEN, {}) == "Make this kernel faster."
    assert phrase(question, Style.BARE, {}) == ""
    with pytest.raises(ValueError, match="gain"):
        phrase(question, Style.QUESTION, {})
