import pytest

from questions.repeats import LineCount, repeats_by_step


def test_a_line_brought_back_is_a_repeat():
    steps = repeats_by_step(["a1\nb1\n", "a1\nc1\n", "a1\nb1\nd1\n"])
    assert steps == (LineCount(added=1, repeated=0), LineCount(added=2, repeated=1))
    assert steps[1].share == 0.5


def test_compared_byte_by_byte():
    assert repeats_by_step(["  int i;\n", "\n", "int i;\n"])[1] == LineCount(added=1, repeated=0)
    assert repeats_by_step(["int i; \n", "\n", "int i; \n"])[1] == LineCount(added=1, repeated=1)
    assert repeats_by_step(["int i;\r\n", "\n", "int i;\n"])[1] == LineCount(added=1, repeated=0)


def test_a_moved_line_is_neither_added_nor_deleted():
    [step] = repeats_by_step(["a1\nb1\n", "b1\na1\n"])
    assert step == LineCount(added=0, repeated=0)
    assert step.share == 0.0


def test_braces_and_blanks_do_not_count():
    assert repeats_by_step(["{\n}\n\na1", "", "{\n}\n\n;"])[1] == LineCount(added=0, repeated=0)


def test_a_deletion_can_be_repeated_once():
    assert repeats_by_step(["a1", "", "a1\na1\na1"])[1] == LineCount(added=3, repeated=1)
    steps = repeats_by_step(["a1", "", "a1", "", "a1"])
    assert [step.repeated for step in steps] == [0, 1, 0, 1]


@pytest.mark.parametrize("sources", [[], ["one"]])
def test_too_short_a_lineage(sources):
    assert repeats_by_step(sources) == ()
