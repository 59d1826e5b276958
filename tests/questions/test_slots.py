import pytest

from questions.slots import MAX_VALUE_CHARACTERS, SLOTS, fill, slots_in, without_slots


def test_the_documented_slots():
    assert set(SLOTS) == {
        "worst_scenario", "worst_speedup", "roof_share", "advisory", "best_scenario", "registers", "spills", "gain",
        "failure",
    }  # fmt: skip


def test_fills_every_slot():
    text = "Why is {worst_scenario} at {worst_speedup}, and {worst_scenario} alone?"
    values = {"worst_scenario": "b1 s512", "worst_speedup": "0.93", "gain": "1.2"}
    assert fill(text, values) == "Why is b1 s512 at 0.93, and b1 s512 alone?"


@pytest.mark.parametrize(
    "value", ["{gain}", "{0}", "{threadIdx.x}", "{}", "{{", "}", r"\g<0> \1", "%s %(x)s", "{failure.__class__}"]
)
def test_a_value_is_never_read_as_a_template(value):
    assert fill("It failed: {failure}, why?", {"failure": value, "gain": "9"}) == f"It failed: {value}, why?"


def test_a_value_stands_on_one_line_without_its_full_stop():
    assert fill("{failure}?", {"failure": "line 3:\n\terror,\r\n  twice.\n"}) == "line 3: error, twice?"


def test_a_long_value_is_cut():
    filled = fill("{failure}", {"failure": "x" * 5000})
    assert filled == "x" * (MAX_VALUE_CHARACTERS - 1) + "…"
    assert fill("{failure}", {"failure": "x" * MAX_VALUE_CHARACTERS}) == "x" * MAX_VALUE_CHARACTERS


@pytest.mark.parametrize("values", [{}, {"gain": ""}, {"gain": " \n."}, {"failure": "x"}])
def test_a_slot_without_a_value_is_refused(values):
    with pytest.raises(ValueError, match=r"slot \{gain\} has no value"):
        fill("A factor of {gain}?", values)


def test_slots_in_and_without_them():
    assert slots_in("{gain} of {gain} in {nowhere}, not {} or {1}") == {"gain", "nowhere"}
    assert without_slots("at {gain} times") == "at  times"
