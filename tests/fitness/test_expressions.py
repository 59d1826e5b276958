"""Expressions: the language that a manifest counts in."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.evaluation import Status
from fitness.expressions import LIMIT, Expression
from fitness.faults import CandidateFault

FIELDS = {"batch": 2, "heads": 8, "kv_heads": 2, "seqlen_q": 100, "BLOCK_M": 64, "zero": 0, "big": 2**62}


def reason_of(text: str) -> str:
    with pytest.raises(CandidateFault) as caught:
        Expression(text, place="here").evaluate(FIELDS)
    assert caught.value.status is Status.INVALID
    assert caught.value.reason.startswith("here: ")
    return caught.value.reason


def value_or_fault(text: str) -> int | CandidateFault:
    try:
        return Expression(text).evaluate(FIELDS)
    except CandidateFault as fault:
        return fault


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        (" 1 +\n 2 ", 3),
        ("-3 - -5", 2),
        ("(seqlen_q + BLOCK_M - 1) // BLOCK_M", 2),
        ("cdiv(seqlen_q, BLOCK_M)", 2),
        ("cdiv(-7, 2)", -3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("min(5, 3, 4) * max(1, 2)", 6),
        ("seqlen_q > 64", 1),
        ("seqlen_q <= 64", 0),
        ("1 < 2 < 3", 1),
        ("1 < 3 < 2", 0),
        ("(heads == 8) + (heads != 8) + (heads >= 8)", 2),
        ("not heads", 0),
        ("not zero", 1),
        ("zero or heads", 8),
        ("zero and 1 // zero", 0),
        ("1 if heads > kv_heads else 1 // zero", 1),
        ("heads // kv_heads", 4),
        ("9223372036854775807", LIMIT - 1),
        ("-9223372036854775807", 1 - LIMIT),
        ("not " * 49 + "1", 0),
    ],
)
def test_value(text, value):
    result = Expression(text).evaluate(FIELDS)
    assert result == value
    assert type(result) is int


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1 / 2", "write //"),
        ("2 ** 8", "write a product"),
        ("1 << 4", "LShift is not allowed"),
        ("~1", "'~' may not stand"),
        ("heads & 1", "'&' may not stand"),
        ("heads[0]", "'[' may not stand"),
        ("heads.real", "'.' may not stand"),
        ("1.5", "'.' may not stand"),
        ("'a'", '"\'" may not stand'),
        ("heads\x00", "'\\x00' may not stand"),
        ("ℎeads", "'ℎ' may not stand"),
        ("٣", "'٣' may not stand"),
        ("heads ? 1 : 2", "'?' may not stand"),
        ("0x10", "'0x10' is not a whole number in decimal"),
        ("1e3", "'1e3' is not a whole number in decimal"),
        ("1_000", "'1_000' is not a whole number in decimal"),
        ("1if heads else 2", "'1if' is not a whole number in decimal"),
        ("007", "leading zeros"),
        ("+1", "UAdd is not allowed"),
        ("True", "write 1 for true"),
        ("None", "not a whole number"),
        ("1, 2", "Tuple is not allowed"),
        ("", "invalid syntax"),
        ("   ", "invalid syntax"),
        ("1 +", "invalid syntax"),
        ("heads = 8", "invalid syntax"),
        ("heads in heads", "In is not allowed"),
        ("await heads", "Await is not allowed"),
        ("abs(heads)", "abs is not a function here; allowed: cdiv, min, max"),
        ("heads(1, 2)", "heads is not a function here"),
        ("min(1, 2)(3, 4)", "is not a function here"),
        ("min", "min is a function"),
        ("min + 1", "min is a function"),
        ("min(heads)", "two or more arguments"),
        ("cdiv(1, 2, 3)", "exactly two arguments"),
        ("min(*heads)", "two or more arguments"),
        ("min(a=1, b=2)", "without names"),
        ("__import__(1, 2)", "__import__ is not a function here"),
        ("head + 1", "head is not known here; did you mean heads? allowed: batch, heads"),
        ("heads // zero", "divides by zero with heads = 8, zero = 0"),
        ("heads % zero", "divides by zero"),
        ("cdiv(heads, zero)", "divides by zero"),
        ("9223372036854775808", "not below 2^63"),
        ("9" * 199, "not below 2^63"),
        ("big * 2", f"a result is {LIMIT} with big = {2**62}; expected less than 2^63"),
        ("big * 2 - big", "a result is"),
        ("-big - big", "a result is"),
        ("cdiv(big * big, big)", "a result is"),
        ("-" * 60 + "1", "nested too deeply"),
        ("(" * 100 + "1" + ")" * 99, "was never closed"),
        ("-" * 199 + "1", "nested too deeply"),
        ("1" + "+1" * 99, "nested too deeply"),
        ("1 " * 101, "it has 202 characters; at most 200"),
    ],
)
def test_refusal(text, part):
    assert part in reason_of(text)


def test_a_text_of_exactly_the_limit_is_read():
    assert Expression("1" + " " * 199).evaluate({}) == 1


def test_names():
    expression = Expression("min(heads, 3) if BLOCK_M > 1 else zero")
    assert expression.names == {"heads", "BLOCK_M", "zero"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("seqlen_q", {"seqlen_q"}),
        ("seqlen_q > 1024", set()),
        ("(seqlen_q > 1024) + batch", {"batch"}),
        ("heads // kv_heads", set()),
        ("2 * (heads // kv_heads)", set()),
        ("kv_heads // heads", {"heads", "kv_heads"}),
        ("heads // kv_heads // heads", {"heads"}),
        ("heads // (kv_heads)", set()),
        ("heads % kv_heads == 0", set()),
        ("not heads", {"heads"}),
        ("64 if seqlen_q > batch else min(heads, 2)", {"heads"}),
    ],
)
def test_names_outside_comparisons(text, names):
    assert Expression(text).names_outside_comparisons == names


def test_an_expression_can_be_evaluated_again_with_other_fields():
    expression = Expression("a + b")
    assert [expression.evaluate({"a": a, "b": 1}) for a in (1, 5)] == [2, 6]


ALPHABET = st.sampled_from(
    [
        *["heads", "zero", "big", "cdiv", "min", "max", "if", "else", "and", "or", "not", "in", "True", "9" * 20],
        *"01()+-*/%<>=!, \n\t.[]{}:'\"\\~^&|@#_éx2",
        *["//", "**", "<<", "==", "!=", "<=", "\x00", ":="],
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=220),
        st.lists(ALPHABET, max_size=60).map(" ".join),
        st.lists(ALPHABET, max_size=60).map("".join),
    )
)
def test_any_text_gives_an_integer_or_a_fault(text):
    outcome = value_or_fault(text)
    if isinstance(outcome, CandidateFault):
        assert outcome.status is Status.INVALID
        assert 0 < len(outcome.reason) < 1000
    else:
        assert type(outcome) is int
        assert abs(outcome) < LIMIT


WHOLE = st.integers(-5, 5).map(lambda n: f"({n})")
ARITHMETIC = st.recursive(
    WHOLE,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(ARITHMETIC)
def test_arithmetic_agrees_with_pythons(text):
    try:
        expected = int(eval(text))
    except ZeroDivisionError:
        expected = None
    if len(text) > 200:
        return
    if expected is None:
        assert "divides by zero" in reason_of(text)
    else:
        assert Expression(text).evaluate({}) == expected


class Interrupting:
    """Garbage in a cycle: the collector takes it whenever it runs, and lets other threads go on meanwhile."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        Path().stat()  # leaves the interpreter to another thread for a moment


def test_threads_may_parse_at_the_same_time():
    def parse(_):
        garbage = [Interrupting() for _ in range(20)]
        return Expression(f"min(32, cdiv(batch * (heads + {len(garbage)}), 2 * 64), cdiv(4, max(1, batch)))").names

    thresholds = gc.get_threshold()
    gc.set_threshold(40)  # so that it runs while a tree is being built
    try:
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(parse, range(1600))) == {frozenset({"batch", "heads"})}
    finally:
        gc.set_threshold(*thresholds)
