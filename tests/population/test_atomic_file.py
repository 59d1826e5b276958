"""Files that are whole or absent, and strict JSON."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from population.atomic_file import parse_json, strict_json, write_atomically

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_the_text_is_written_as_it_is(tmp_path):
    path = tmp_path / "result.json"
    write_atomically(path, "a\r\n×\n")
    assert path.read_bytes() == b"a\r\n\xc3\x97\n"
    write_atomically(path, "")
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


def test_until_the_rename_the_old_text_stands(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    seen = []

    def rename(temporary, target):
        seen.extend([target.read_text(), temporary.read_text()])
        temporary.replace(target)

    write_atomically(path, "new", rename=rename)
    assert seen == ["old", "new"]
    assert path.read_text() == "new"


def test_a_failing_rename_leaves_the_old_text_and_no_rubbish(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")

    def rename(temporary, target):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new", rename=rename)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_that_is_no_unicode_touches_nothing(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "x", "\ud800")
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(JSON)
def test_json_round_trips(value):
    assert parse_json(strict_json(value)) == value
    assert parse_json(strict_json(value, indent=2)) == value


def test_sorted_keys_make_equal_values_equal_texts():
    assert strict_json({"b": 1, "a": 2}) == strict_json({"a": 2, "b": 1}) == '{"a": 2, "b": 1}'
    assert strict_json({"b": 1, "a": 2}, sort_keys=False) == '{"b": 1, "a": 2}'


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": {"b": math.nan}}])
def test_what_is_not_finite_is_not_written(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json(value)


@pytest.mark.parametrize("value", [{1: 2}, [{None: 1}], ({"a": {2.5: 1}},), {1, 2}, b"a"])
def test_what_json_has_no_form_for_is_not_written(value):
    with pytest.raises(TypeError):
        strict_json(value)


DEEP = pytest.param("[" * 100_000, id="deep")


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "", "{", '{"a": 1} x', DEEP])
def test_what_is_not_strict_json_is_not_read(text):
    with pytest.raises(ValueError):  # noqa: PT011  # json's own messages vary with the version
        parse_json(text)
