import pytest

from questions.entry import read_entry, write_entry
from questions.personal import personal_question
from questions.phrasing import phrase
from questions.question import Layer, Style


def test_the_persons_words_stand_in_every_style():
    question = personal_question("  Is the L2 full,\nor idle? ", layer=Layer.MEMORY)
    for style in (Style.QUESTION, Style.IMPERATIVE, Style.INFORMATION, Style.PRESCRIPTION):
        assert phrase(question, style, {}) == "Is the L2 full, or idle?"
    assert question.origin == "person"
    assert question.targets == ("portable", "sm_80", "sm_90a", "sm_100a")


def test_the_id_is_made_of_the_words():
    first = personal_question("Is the L2 full, or does it idle most of the time?", layer=Layer.MEMORY)
    again = personal_question("Is the L2 full, or does it idle most of the  time?", layer=Layer.MEMORY)
    other = personal_question("Is the L2 full, or does it idle at night?", layer=Layer.MEMORY)
    assert first.id == again.id
    assert first.id != other.id
    assert first.id.startswith("person-is-the-l2-full-or-does-")


@pytest.mark.parametrize("text", ["Ist die L2-Strecke für {worst_scenario} zu kurz?", "你好吗?", "A: b? `{}` \"x\" #?"])
def test_any_text_can_be_kept_as_an_entry(text):
    question = personal_question(text, layer=Layer.LAUNCH)
    assert read_entry(write_entry(question), "here") == question


@pytest.mark.parametrize("text", ["", "?", "Make it faster.", "Why? Because."])
def test_what_is_no_question_is_refused(text):
    with pytest.raises(ValueError, match="question mark"):
        personal_question(text, layer=Layer.MEMORY)


def test_an_unknown_slot_is_refused():
    with pytest.raises(ValueError, match=r"unknown slots \['nothing'\]"):
        personal_question("What of {nothing}?", layer=Layer.MEMORY)
