"""Which long lines two files share."""

from benchmarks.shared_lines import compare, long_lines

LONG = "const int a_rather_long_name = another_long_name + 1;"


def test_indentation_comments_and_a_macros_backslash_make_no_other_line(tmp_path):
    ours, theirs = tmp_path / "ours.cu", tmp_path / "theirs.hpp"
    ours.write_text(f"{LONG}\nint short_one;\n")
    theirs.write_text(f"    {LONG.replace(' = ', '  =  ')}  \\\n\t{LONG} // as everybody knows\n")
    assert long_lines(theirs) == {LONG}
    found = compare(ours, long_lines(theirs))
    assert (found["kernel"], found["lines"], found["shared"]) == ("ours.cu", 1, 1)


def test_what_only_a_comment_makes_long_is_not_compared(tmp_path):
    source = tmp_path / "source.py"
    source.write_text("x = 1  # " + "as long as one likes it to be " * 3 + "\n")
    assert long_lines(source) == set()


def test_another_name_is_another_line(tmp_path):
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(LONG)
    assert compare(kernel, {LONG.replace("rather", "very")})["shared"] == 0
