"""Family trees, and lines that come back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from population.lineage import Lineage, ReaddedLines, readded_lines

#   a   b        two seeds
#   | \ |
#   c   d        d: first parent a, second b
#   |   |
#   e   f
#    \ /
#     g          first parent e
FAMILY = [
    ("a", ()), ("b", ()), ("c", ("a",)), ("d", ("a", "b")), ("e", ("c",)), ("f", ("d",)), ("g", ("e", "f")),
]  # fmt: skip


def test_the_line_follows_first_parents_from_the_seed():
    tree = Lineage(FAMILY)
    assert tree.line("g") == ("a", "c", "e", "g")
    assert tree.line("b") == ("b",)


def test_an_unknown_id_is_a_key_error():
    tree = Lineage(FAMILY)
    with pytest.raises(KeyError, match="z"):
        tree.line("z")
    with pytest.raises(KeyError, match="z"):
        tree.nearest_common("a", "z")


@pytest.mark.parametrize(
    ("births", "message"),
    [
        ([("a", ()), ("a", ())], "a is listed twice"),
        ([("a", ("b",)), ("b", ())], "b, parent of a, is not listed before it"),
        ([("a", ("a",))], "a, parent of a, is not listed before it"),
        ([("a", ()), ("b", ("z",))], "z, parent of b, is not listed before it"),
    ],
)
def test_a_tree_that_is_none_is_refused(births, message):
    with pytest.raises(ValueError, match=message):
        Lineage(births)


def test_a_line_of_fifty_thousand_births():
    tree = Lineage((str(n), (str(n - 1),) if n else ()) for n in range(50_000))
    assert len(tree.line("49999")) == 50_000
    assert tree.nearest_common("49998", "49999") == "49998"


def test_a_line_that_was_deleted_and_comes_back_is_readded():
    line = ["int a;\nint b;\n", "int a;\n", "int a;\nint b;\nint c;\n"]
    assert readded_lines(line) == ReaddedLines(added=2, readded=1)


def test_lines_are_compared_byte_for_byte():
    assert readded_lines(["a\nb\n", "a\n", "a\n b\n"]) == ReaddedLines(added=1, readded=0)


def test_a_line_comes_back_from_any_depth():
    assert readded_lines(["x\n", "y\n", "z\n", "w\n", "x\n"]) == ReaddedLines(added=1, readded=1)


def test_moved_and_blank_lines_do_not_count():
    assert readded_lines(["a\nb\n", "b\na\n", "b\n\n  \na\n"]) == ReaddedLines(added=0, readded=0)


def test_repeated_lines_count_as_often_as_they_occur():
    assert readded_lines(["}\n}\n", "}\n", "}\n}\n}\n"]) == ReaddedLines(added=2, readded=2)


def test_a_seed_adds_nothing():
    assert readded_lines(["a\n"]) == ReaddedLines(added=0, readded=0)


def test_a_first_child_can_readd_nothing():
    assert readded_lines(["a\n", "b\n"]) == ReaddedLines(added=1, readded=0)


def test_no_source_is_refused():
    with pytest.raises(ValueError, match="expected those from the seed"):
        readded_lines([])


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab\n", max_size=8), min_size=1, max_size=6))
def test_never_more_lines_come_back_than_are_added(sources):
    result = readded_lines(sources)
    assert 0 <= result.readded <= result.added <= len(sources[-1].split("\n"))


def test_the_nearest_common_one_has_the_fewest_births_in_between():
    tree = Lineage([*FAMILY, ("h", ("d",)), ("i", ("b",)), ("j", ("c", "d"))])
    pairs = ["ce", "ef", "fh", "hi", "gh", "gg", "ag", "ab", "ji"]
    assert [tree.nearest_common(*pair) for pair in pairs] == ["c", "a", "d", "b", "d", "g", "a", None, "b"]
