import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.edits import Edit, apply_edits, edits_of_diff
from evo.unreadable import NoChange, UnreadableReply

PARENT = (Path(__file__).parent / "data" / "parent.cu").read_text()


def edit(search: str, replace: str, line: int | None = None) -> Edit:
    return Edit(
        search=tuple(search.split("\n")), replace=tuple(replace.split("\n")) if replace else (), line=line
    )


def test_an_exact_edit_changes_its_lines_and_no_others():
    child = apply_edits(PARENT, [edit("    float sum = 0.0f;", "    float sum = 1.0f;")])
    assert child == PARENT.replace("float sum = 0.0f;", "float sum = 1.0f;")


def test_an_empty_replacement_deletes():
    child = apply_edits(PARENT, [edit("// The score of one query with one key.", "")])
    assert child == PARENT.replace("// The score of one query with one key.\n", "")


def test_added_lines_go_where_the_context_says():
    child = apply_edits("a\nb\nc\n", [edit("a\nb", "a\nnew\nb")])
    assert child == "a\nnew\nb\nc\n"


@pytest.mark.parametrize("search", ["b", "a\nb\nc", "\na\nb"])
def test_a_search_text_is_whole_lines(search):
    assert apply_edits("\na\nb\nc", [edit(search, "x")]) == ("\na\nb\nc".replace(search, "x"))
    with pytest.raises(UnreadableReply, match="stands nowhere"):
        apply_edits("\naa\nbb\ncc", [edit(search, "x")])


def test_trailing_blanks_in_the_search_text_are_overlooked():
    assert apply_edits("a;\n  b;  \nc;\n", [edit("a; \n  b;\t", "a;\n  B;")]) == "a;\n  B;\nc;\n"


def test_an_exact_match_goes_before_one_that_overlooks_blanks():
    assert apply_edits("b; \nb;\n", [edit("b;", "c;")]) == "b; \nc;\n"


def test_indentation_may_be_less_and_the_replacement_is_shifted_with_it():
    search = "for (int d = 0; d < n; ++d) {\n    sum += to_float(q[d]) * to_float(k[d]);\n}"
    replace = "for (int d = 0; d < n; ++d) {\n    sum += 1.0f;\n\n    sum += 2.0f;\n}"
    child = apply_edits(PARENT, [edit(search, replace)])
    assert child == PARENT.replace(
        "        sum += to_float(q[d]) * to_float(k[d]);\n", "        sum += 1.0f;\n\n        sum += 2.0f;\n"
    )


def test_indentation_may_be_more():
    child = apply_edits("if {\n  a;\n}\n", [edit("    if {\n      a;\n    }", "    if {\n      b;\n    }")])
    assert child == "if {\n  b;\n}\n"


def test_a_tab_shift_is_a_shift():
    assert apply_edits("\tif {\n\t\ta;\n\t}\n", [edit("if {\n\ta;\n}", "if {\n\tb;\n}")]) == "\tif {\n\t\tb;\n\t}\n"


def test_indentation_that_differs_line_by_line_is_refused():
    with pytest.raises(UnreadableReply, match="line by line"):
        apply_edits("  if {\n    a;\n  }\n", [edit("if {\na;\n}", "if {\nb;\n}")])


def test_a_replacement_that_cannot_be_shifted_back_is_refused():
    with pytest.raises(UnreadableReply, match="indented less"):
        apply_edits("a;\nb;\n", [edit("  a;\n  b;", "  a;\nc;\n  b;")])


@pytest.mark.parametrize("search", ["    }", "    }\n", "  }", "\t}"])
def test_a_search_text_with_several_places_is_refused(search):
    with pytest.raises(UnreadableReply, match="more than one place"):
        apply_edits("    }\n\n    }\n\n}\n", [edit(search, "x")])


def test_one_exact_place_goes_before_several_with_other_indentation():
    assert apply_edits("    }\n    }\n}\n", [edit("}", "};")]) == "    }\n    }\n};\n"


def test_places_that_overlap_are_several():
    with pytest.raises(UnreadableReply, match="more than one place"):
        apply_edits("a\na\na\n", [edit("a\na", "b")])


def test_one_misfit_refuses_every_edit():
    with pytest.raises(UnreadableReply, match=r"edit 2 of 2: .*'double sum;', stands nowhere"):
        apply_edits(PARENT, [edit("    return sum;", "    return 2 * sum;"), edit("double sum;", "x")])


@pytest.mark.parametrize("search", ["", "\n", "  \n\t", "\u200b", "\u00a0\n"])
def test_an_empty_search_text_is_refused(search):
    with pytest.raises(UnreadableReply, match="empty"):
        apply_edits(PARENT, [edit(search, "x")])


@pytest.mark.parametrize("both", ["    return sum;", "return sum;", "    return sum;  "])
def test_a_replacement_equal_to_its_search_text_is_no_change(both):
    with pytest.raises(NoChange):
        apply_edits(PARENT, [edit(both, both)])


def test_an_edit_without_effect_beside_one_with_effect_is_harmless():
    child = apply_edits("a\nb\n", [edit("a", "a"), edit("b", "c")])
    assert child == "a\nc\n"


def test_edits_are_found_in_the_parent_whatever_their_order():
    edits = [edit("a", "b"), edit("b", "c"), edit("c", "a")]
    assert {apply_edits("a\nb\nc\n", order) for order in (edits, edits[::-1])} == {"b\nc\na\n"}


def test_an_edit_of_another_ones_result_is_refused():
    with pytest.raises(UnreadableReply, match="nowhere"):
        apply_edits("a\n", [edit("a", "b"), edit("b", "c")])


def test_edits_may_share_context_but_not_changes():
    assert apply_edits("a\nb\nc\n", [edit("a\nb", "A\nb"), edit("b\nc", "b\nC")]) == "A\nb\nC\n"
    with pytest.raises(UnreadableReply, match="same place, line 2"):
        apply_edits("a\nb\nc\n", [edit("a\nb", "a\nB"), edit("b\nc", "x\nc")])
    with pytest.raises(UnreadableReply, match="same place, line 2"):
        apply_edits("a\nb\n", [edit("a\nb", "a\n1\nb"), edit("a\nb", "a\n2\nb")])


def test_a_parent_with_crlf_ends_keeps_them():
    parent = PARENT.replace("\n", "\r\n")
    child = apply_edits(parent, [edit("    return sum;", "    sum += 1.0f;\n    return sum;")])
    assert child == parent.replace("    return sum;", "    sum += 1.0f;\r\n    return sum;")


def test_a_parent_with_mixed_ends_is_edited_too():
    assert apply_edits("a\r\nb\nc\r\n", [edit("a\nb", "a\nB")]) == "a\r\nB\nc\r\n"


def test_lines_end_at_line_feeds_only():
    parent = "a\x0cb\u2028c\x85d\nx\n"
    assert apply_edits(parent, [edit("x", "y")]) == "a\x0cb\u2028c\x85d\ny\n"


def test_untouched_lines_keep_their_typography():
    parent = "// the row\u2019s maximum \u2013 kept\nint a;\nint b;\n"
    comment = "// the row's maximum - kept"
    child = apply_edits(parent, [edit(f"{comment}\nint a;", f"{comment}\nint c;")])
    assert child == parent.replace("int a;", "int c;")


def test_a_line_number_chooses_among_places():
    assert apply_edits("a\nb\na\n", [edit("a", "c", line=3)]) == "a\nb\nc\n"
    with pytest.raises(UnreadableReply, match="more than one place"):
        apply_edits("a\nb\na\n", [edit("a", "c", line=2)])


def test_a_wrong_line_number_does_not_matter_where_the_place_is_plain():
    assert apply_edits("a\nb\n", [edit("b", "c", line=77)]) == "a\nc\n"


def test_a_diff_becomes_one_edit_a_hunk():
    lines = [
        "diff --git a/k.cu b/k.cu", "--- a/k.cu", "+++ b/k.cu",
        "@@ -1,3 +1,3 @@ void f()", " a", "-b", "+B", "", " c",
        "@@ -9 +9,0 @@", "-z", "\\ No newline at end of file", "",
    ]  # fmt: skip
    first, second = edits_of_diff(lines)
    assert first == Edit(search=("a", "b", "", "c"), replace=("a", "B", "", "c"), line=1)
    assert second == Edit(search=("z",), replace=(), line=9)


@pytest.mark.parametrize("header", ["@@", "@@ ... @@", "@@ -1,2 +1,2 @@", "@@ void f() @@"])
def test_hunk_headers_with_and_without_numbers_are_known(header):
    assert edits_of_diff([header, "-a", "+b"])[0].search == ("a",)


def test_removed_lines_that_look_like_a_file_header_are_removed_lines():
    (one,) = edits_of_diff(["@@ -1 +1 @@", "--- x;", "+++ y;"])
    assert one == Edit(search=("-- x;",), replace=("++ y;",), line=1)


def test_a_diff_line_without_its_mark_is_refused():
    with pytest.raises(UnreadableReply, match="neither a blank"):
        edits_of_diff(["@@ -1 +1 @@", "int a;", "+int b;"])


def test_more_edits_than_anyone_reads_are_refused():
    with pytest.raises(UnreadableReply, match="501 edits"):
        apply_edits("a\n", [edit("a", "b")] * 501)


def test_a_hostile_search_is_fast():
    parent = "    a;\n" * 20000
    hostile = [edit("\n".join(["a;"] * 9999 + ["b;"]), "x"), edit("\n".join(["  a;"] * 9000), "x")]
    for one in hostile:
        with pytest.raises(UnreadableReply):
            apply_edits(parent, [one] * 500)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", " a", "a ", "b", "", "\t}"]), max_size=12), st.randoms(use_true_random=False))
def test_replacing_any_unique_stretch_does_just_that(lines: list[str], rng: random.Random):
    start = rng.randrange(len(lines) + 1)
    end = rng.randrange(start, len(lines) + 1)
    search, replace = lines[start:end], rng.choices(["x", "", "  y"], k=rng.randrange(4))
    places = [n for n in range(len(lines)) if lines[n : n + len(search)] == search]
    one = Edit(search=tuple(search), replace=tuple(replace))
    if not any(line.strip() for line in search) or len(places) != 1:
        with pytest.raises(UnreadableReply):
            apply_edits("\n".join(lines), [one])
        return
    expected = "\n".join(lines[:start] + replace + lines[end:])
    assert apply_edits("\n".join(lines), [one]) == expected
