from collections import Counter

from questions.entry import TARGETS
from questions.lint import lint
from questions.phrasing import phrase
from questions.question import Layer, Moment, Style
from questions.slots import SLOTS, slots_in


def test_has_nothing_to_find_fault_with(shipped_bank):
    assert lint(shipped_bank) == ()


def test_size(shipped_bank):
    assert len(shipped_bank) >= 120
    assert sum("portable" in question.targets for question in shipped_bank) >= 40
    assert sum(question.prescription is not None for question in shipped_bank) >= 60


def test_every_layer_is_asked_about(shipped_bank):
    counts = Counter(question.layer for question in shipped_bank)
    assert {layer: count for layer in Layer if (count := counts[layer]) < 15} == {}


def test_every_moment_has_questions_for_every_target(shipped_bank):
    counts = Counter((moment, target) for q in shipped_bank for moment in q.moments for target in q.targets)
    assert {key: counts[key] for moment in Moment for target in TARGETS if counts[key := (moment, target)] < 6} == {}


def test_a_stall_or_a_limit_can_move_to_every_other_layer(shipped_bank):
    for moment in (Moment.STALL, Moment.LIMIT_DECLARED):
        fitting = [q for q in shipped_bank if moment in q.moments and "portable" in q.targets and not slots_in(q.text)]
        assert {question.layer for question in fitting} == set(Layer)


def test_crossover_questions_speak_of_two_parents(shipped_bank):
    for question in shipped_bank:
        if Moment.CROSSOVER in question.moments:
            assert "parent" in question.text, question.id


def test_every_question_can_be_put_in_every_style_that_it_has(shipped_bank):
    values = {name: f"<{name}>" for name in SLOTS}
    for question in shipped_bank:
        styles = set(Style) - ({Style.PRESCRIPTION} if question.prescription is None else set())
        texts = {style: phrase(question, style, values) for style in styles}
        assert len(set(texts.values())) == len(styles), question.id
        assert [style for style, text in texts.items() if text.endswith("?")] == [Style.QUESTION], question.id
