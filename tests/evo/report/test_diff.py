"""What a child changed, in pieces."""

from evo.report.diff import Kind, Piece, diff_of


def test_a_changed_line_between_kept_ones() -> None:
    assert diff_of("a\nb\nc\n", "a\nB\nc\n") == (
        Piece(kind=Kind.PLACE, text="@@ -1,3 +1,3 @@\n"),
        Piece(kind=Kind.KEPT, text="a\n"),
        Piece(kind=Kind.DELETED, text="b\n"),
        Piece(kind=Kind.ADDED, text="B\n"),
        Piece(kind=Kind.KEPT, text="c\n"),
    )


def test_lines_that_look_like_a_diffs_own_marks_keep_their_fate() -> None:
    pieces = diff_of("x\n--- old\n", "x\n+++ new\n@@ here\n")
    assert [(piece.kind, piece.text) for piece in pieces[1:]] == [
        (Kind.KEPT, "x\n"), (Kind.DELETED, "--- old\n"), (Kind.ADDED, "+++ new\n@@ here\n"),
    ]  # fmt: skip


def test_equal_sources_have_none() -> None:
    assert diff_of("a\n", "a\n") == ()
