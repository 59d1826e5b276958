"""Family trees, and lines that come back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from population.lineage import Lineage, ReaddedLines, readded_share

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


def test_ancestors_come_nearest_first_and_once():
    tree = Lineage(FAMILY)
    assert tree.ancestors("g") == ("e", "f", "c", "d", "a", "b")
    assert tree.ancestors("a") == ()


def test_descendants_come_nearest_first_and_once():
    tree = Lineage(dict(FAMILY).items())
    assert tree.descendants("a") == ("c", "d", "e", "f", "g")
    assert tree.descendants("g") == ()


def test_the_line_follows_first_parents_from_the_seed():
    tree = Lineage(FAMILY)
    assert tree.line("g") == ("a", "c", "e", "g")
    assert tree.line("b") == ("b",)
    assert [tree.depth(each) for each in "abcdefg"] == [0, 0, 1, 1, 2, 2, 3]


def test_siblings_share_a_parent():
    tree = Lineage([*FAMILY, ("h", ("b", "a")), ("i", ("b", "b"))])
    assert tree.siblings("d") == ("c", "h", "i")
    assert tree.siblings("i") == ("d", "h")
    assert tree.siblings("a") == ()


def test_an_unknown_id_is_a_key_error():
    tree = Lineage(FAMILY)
    for ask in (tree.ancestors, tree.descendants, tree.line, tree.depth, tree.siblings):
        with pytest.raises(KeyError, match="z"):
            ask("z")


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
    assert tree.depth("49999") == 49_999
    assert len(tree.ancestors("49999")) == 49_999
    assert tree.descendants("0")[-1] == "49999"


def test_a_line_that_was_deleted_and_comes_back_is_readded():
    line = ["int a;\nint b;\n", "int a;\n", "int a;\nint b;\nint c;\n"]
    assert readded_share(line) == ReaddedLines(added=2, readded=1)
    assert readded_share(line).share == 0.5


def test_lines_are_compared_byte_for_byte():
    assert readded_share(["a\nb\n", "a\n", "a\n b\n"]) == ReaddedLines(added=1, readded=0)


def test_a_line_comes_back_from_any_depth():
    assert readded_share(["x\n", "y\n", "z\n", "w\n", "x\n"]) == ReaddedLines(added=1, readded=1)


def test_moved_and_blank_lines_do_not_count():
    assert readded_share(["a\nb\n", "b\na\n", "b\n\n  \na\n"]) == ReaddedLines(added=0, readded=0)


def test_repeated_lines_count_as_often_as_they_occur():
    assert readded_share(["}\n}\n", "}\n", "}\n}\n}\n"]) == ReaddedLines(added=2, readded=2)


def test_a_seed_adds_nothing_and_has_no_share():
    assert readded_share(["a\n"]) == ReaddedLines(added=0, readded=0)
    assert readded_share(["a\n"]).share is None


def test_a_first_child_can_readd_nothing():
    assert readded_share(["a\n", "b\n"]) == ReaddedLines(added=1, readded=0)


def test_no_source_is_refused():
    with pytest.raises(ValueError, match="expected those from the seed"):
        readded_share([])


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab\n", max_size=8), min_size=1, max_size=6))
def test_never_more_lines_come_back_than_are_added(sources):
    result = readded_share(sources)
    assert 0 <= result.readded <= result.added <= len(sources[-1].split("\n"))


def test_the_nearest_common_one_has_the_fewest_births_in_between():
    tree = Lineage([*FAMILY, ("h", ("d",)), ("i", ("b",)), ("j", ("c", "d"))])
    pairs = ["ce", "ef", "fh", "hi", "gh", "gg", "ag", "ab", "ji"]
    assert [tree.nearest_common(*pair) for pair in pairs] == ["c", "a", "d", "b", "d", "g", "a", None, "b"]
