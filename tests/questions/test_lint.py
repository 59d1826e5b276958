import pytest

from questions.lint import lint
from questions.question import Layer, Moment


def rules(question, make_bank) -> set[str]:
    return {finding.rule for finding in lint(make_bank(question)) if finding.question_ids}


def test_a_good_question_has_no_finding(make_question, make_bank):
    assert rules(make_question(), make_bank) == set()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"text": "Which buffer waits longest."}, "question-mark"),
        ({"text": "One waits. Another works. Which one is it?"}, "sentences"),
        ({"text": "Which buffer " + "of all these many " * 14 + "waits?"}, "length"),
        ({"text": "What does `wait` do?"}, "code"),
        ({"text": "Which buffer waits longest {?"}, "code"),
        ({"text": "One waits; which one?"}, "code"),
        ({"text": "Does std::exp wait?"}, "code"),
        ({"text": "Does wait(0) wait?"}, "code"),
        ({"information": "Some buffer waits; it is long."}, "code"),
        ({"text": "Find the buffer that waits longest?"}, "imperative"),
        ({"text": "The loop waits: use another buffer?"}, "imperative"),
        ({"text": "It waits. Make it faster, will that do?"}, "imperative"),
        ({"text": "Which buffer, please, waits longest?"}, "imperative"),
        ({"text": "Which buffer do you think you should drop?"}, "imperative"),
        ({"hypothesis": " "}, "hypothesis"),
        ({"measurement": ""}, "measurement"),
        ({"information": "Which buffer waits longest."}, "phrasings"),
        ({"imperative": "Find which buffer waits longest?"}, "phrasings"),
        ({"information": "Which buffer waits?"}, "phrasings"),
        ({"prescription": "Find which buffer waits longest, and change the kernel accordingly."}, "phrasings"),
        ({"imperative": "Buffers wait."}, "phrasings"),
        ({"prescription": "Another buffer."}, "phrasings"),
        ({"information": "Find which one waits."}, "phrasings"),
        ({"text": "Which buffer waits at {worst_speedup}?"}, "slots"),
        ({"prescription": "Add a buffer of {spills}."}, "slots"),
    ],
)
def test_each_rule(make_question, make_bank, changes, rule):
    assert rules(make_question(**changes), make_bank) == {rule}


@pytest.mark.parametrize(
    "text",
    [
        "Does the order of the loads matter?",
        "At head dimension 64, which unit waits?",
        "It reaches 1.09 of the roof. Which unit waits?",
        "Do stores wait for loads?",
        "Which waits longer, e.g. in decode?",
        "x" * 238 + "?",
    ],
)
def test_what_is_well_written(make_question, make_bank, text):
    assert rules(make_question(text=text), make_bank) == set()


def test_the_length_counts_slots_as_written(make_question, make_bank):
    question = make_question(text="x" * 240 + "?")
    assert rules(question, make_bank) == {"length"}


def test_near_duplicates_are_reported_with_both_ids(make_question, make_bank):
    one = make_question("one", text="How many registers does the inner loop spill, and where?", hypothesis="spills")
    two = make_question("two", text="Where does the inner loop spill its registers?", hypothesis="too many values")
    other = make_question("three", text="Which block finishes last?", hypothesis="the tail is idle")
    found = [finding for finding in lint(make_bank(one, two, other)) if finding.rule == "same-meaning"]
    assert [finding.question_ids for finding in found] == [("one", "two")]
    assert "one and two: 100% of their words in common" in found[0].message


def test_one_hypothesis_for_two_questions(make_question, make_bank):
    one = make_question("one", text="Which block finishes last?", hypothesis="the tail is idle")
    two = make_question("two", text="How full is the final round?", hypothesis="idle tails")
    found = [finding for finding in lint(make_bank(one, two)) if finding.rule == "same-meaning"]
    assert [finding.question_ids for finding in found] == [("one", "two")]


def test_layers_and_moments_that_nothing_asks_about(make_question, make_bank):
    bank = make_bank(
        make_question(layer=Layer.MEMORY, moments=tuple(m for m in Moment if m is not Moment.BIG_WIN)),
    )
    missing = [finding.message for finding in lint(bank) if finding.rule == "coverage"]
    assert missing == [
        "no question for the layer algorithm",
        "no question for the layer schedule",
        "no question for the layer instructions",
        "no question for the layer launch",
        "no question for the layer measurement",
        "no question for the moment big_win",
    ]


def test_a_finding_names_the_question(make_question, make_bank):
    finding = lint(make_bank(make_question("late-buffer", text="Which one.")))[0]
    assert finding.question_ids == ("late-buffer",)
    assert finding.message == "late-buffer: ends in '.'; expected a question mark"
