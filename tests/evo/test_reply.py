from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.reply import Answer, read_reply
from evo.typography import mended
from evo.unreadable import NoChange, Notes, UnreadableReply

PARENT = (Path(__file__).parent / "data" / "parent.cu").read_text()
CHILD = PARENT.replace("float sum = 0.0f;", "float sum = 1.0f;")
NOTES = "Hypothesis: the sum starts too low\nChange: start it at 1\nExpect: all scenarios, +1 %\n"
SNIPPET = "```cuda\nfloat sum = 1.0f;\n```\n"


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}>>>>>>> REPLACE\n"


EDIT = block("    float sum = 0.0f;", "    float sum = 1.0f;\n")


def fenced(source: str, tag: str = "cuda", fence: str = "```") -> str:
    return f"{fence}{tag}\n{source}{fence}\n"


def read(text: str | None, finish_reason: str = "stop") -> Answer:
    return read_reply(text, PARENT, finish_reason)


def test_edit_blocks_give_the_child_and_the_notes():
    assert read(f"{NOTES}Claim: limit\n\n{EDIT}") == Answer(
        source=CHILD,
        notes=Notes(
            hypothesis="the sum starts too low",
            change="start it at 1",
            expectation="all scenarios, +1 %",
            claim="limit",
        ),
    )


def test_a_whole_file_gives_the_child():
    answer = read(f"{NOTES}\n{fenced(CHILD)}\nThat is all.")
    assert (answer.source, answer.notes.expectation) == (CHILD, "all scenarios, +1 %")


def test_a_diff_gives_the_child():
    diff = "--- a/k.cu\n+++ b/k.cu\n@@ -19,3 +19,3 @@\n-    float sum = 0.0f;\n+    float sum = 1.0f;\n"
    for tag in ("diff", "patch", ""):
        assert read(NOTES + fenced(diff, tag)).source == CHILD


# R1


@pytest.mark.parametrize(
    "text",
    [
        EDIT.replace("    float", "float"),
        EDIT.replace("0.0f;", "0.0f;  \t"),
        EDIT.replace("\n", "\r\n"),
        EDIT.replace("\n", "\r\r\n"),
        EDIT.replace("SEARCH", "SEARCH ").replace("=======", "======= ").replace("REPLACE", "REPLACE\t"),
        EDIT.replace("SEARCH", "search").replace("REPLACE", "Replace"),
        EDIT.replace("<<<<<<<", "<<<<<").replace(">>>>>>>", ">>>>>>>>"),
        f"```\n{EDIT}```",
        f"```diff\n{EDIT}```",
        "1. First:\n" + "".join(f"   {line}\n" for line in f"```cuda\n{EDIT}```".split("\n")),
    ],
)
def test_small_differences_from_the_parent_are_overlooked(text):
    assert read(text).source == CHILD


# R2


def test_no_child_is_built_from_half_an_answer():
    with pytest.raises(UnreadableReply, match=r"edit 2 of 2: .*nowhere"):
        read(EDIT + block("no such line", "x\n"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n", "exactly one line ======="),
        ("<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE\n", "exactly one line ======="),
        ("<<<<<<< SEARCH\na\n=======\nb\n" + EDIT, "the next one begins before"),
        (EDIT + ">>>>>>> REPLACE\n", "'>>>>>>> REPLACE' is no mark of an edit block, or out of place"),
        (EDIT + EDIT.replace("SEARCH", "FIND"), "'<<<<<<< FIND' is no mark"),
        (EDIT + EDIT.replace("SEARCH", "SEARCH kernel.cu"), "'<<<<<<< SEARCH kernel.cu' is no mark"),
        (EDIT + EDIT.replace("REPLACE", "UPDATED"), "edit 2: '>>>>>>> UPDATED' is no mark"),
        (fenced(CHILD.replace("// The score", "<<<<<<< HEAD\n// The score")), "'<<<<<<< HEAD' is no mark"),
    ],
)
def test_marks_out_of_order_are_refused(text, reason):
    with pytest.raises(UnreadableReply, match=reason):
        read(text)


# R3


def test_an_empty_replace_deletes_and_the_next_block_is_another_edit():
    text = block("// The score of one query with one key.", "") + EDIT
    assert read(text).source == CHILD.replace("// The score of one query with one key.\n", "")


@pytest.mark.parametrize("search", ["", "   ", "\n\n"])
def test_an_empty_search_is_refused(search):
    with pytest.raises(UnreadableReply, match="empty"):
        read(block(search, "int x;\n"))


# R4


@pytest.mark.parametrize(
    "text",
    [
        block("    return sum;", "    return sum;\n"),
        block("    return sum;", "    return sum;  \n"),
        fenced(PARENT),
        fenced(PARENT.replace("\n", "\r\n")),
        fenced("\n" + PARENT + "\n\n"),
        fenced(PARENT.replace(";\n", ";  \n")),
        fenced("@@ -19 +19 @@\n     float sum = 0.0f;\n", "diff"),
    ],
)
def test_a_child_equal_to_its_parent_is_no_change(text):
    with pytest.raises(NoChange):
        read(NOTES + text)


# R5


@pytest.mark.parametrize(
    "text",
    [
        f"```cuda\n{CHILD}",
        f"```cuda\n{CHILD[:300]}",
        EDIT[:-16],
        f"~~~~cuda\n{CHILD}~~~\n",
        f"{fenced(CHILD)}```cuda\nint",
    ],
)
def test_a_reply_that_ends_in_mid_code_is_cut_off(text):
    with pytest.raises(UnreadableReply, match="the reply ends"):
        read(text)


def test_a_reply_at_its_length_limit_is_cut_off_even_where_it_looks_whole():
    for text in (EDIT, fenced(CHILD), "", None):
        with pytest.raises(UnreadableReply, match="reached its length limit"):
            read(text, finish_reason="length")


# R6


@pytest.mark.parametrize("tag", ["cuda", "cpp", "c++", "cu", "CUDA", "none", "cuda ", "", " cuda", "cu t=k", "cu\t"])
@pytest.mark.parametrize("fence", ["```", "~~~", "`````", "~~~~~~"])
def test_every_kind_of_fence_is_read(fence, tag):
    assert read(fenced(CHILD, tag, fence)).source == CHILD


def test_a_fence_may_be_longer_at_its_end_and_indented():
    assert read("- the file:\n" + "".join(f"  {line}\n" for line in f"```cu\n{CHILD}`````".split("\n"))).source == CHILD


def test_a_shorter_row_of_marks_does_not_close_a_fence():
    child = CHILD.replace("// The score", "/*\n```\n*/\n// The score")
    assert read(fenced(child, "cuda", "````")).source == child


def test_marks_within_a_line_open_no_fence():
    assert read(f"Use ```row``` here:\n```int``` is meant\n{EDIT}").source == CHILD


# R7


@pytest.mark.parametrize("tag", ["think", "thinking", "Think", "reasoning"])
def test_a_draft_inside_a_think_block_is_dropped(tag):
    draft = fenced(CHILD.replace("1.0f", "2.0f"))
    assert read(f"<{tag}>\nmaybe\n{draft}{block('x', 'y')}</{tag}>\n{fenced(CHILD)}").source == CHILD
    assert read(f"maybe\n{draft}or so.</{tag}>\n\n{fenced(CHILD)}").source == CHILD
    assert read(f"<{tag}>one</{tag}>\n<{tag}>```cuda\n two</{tag}>{fenced(CHILD)}").source == CHILD
    assert read(f"{fenced(CHILD)}The tags <{tag}> and </{tag}> within a line are words.").source == CHILD


def test_thinking_after_the_answer_is_dropped_too():
    assert read(f"{fenced(CHILD)}\n<think>was that right? ```").source == CHILD


def test_thinking_without_an_answer_is_none():
    with pytest.raises(UnreadableReply, match="all thinking"):
        read(f"<think>\n{fenced(CHILD)}")
    with pytest.raises(UnreadableReply, match="thinking and no answer"):
        read(f"<think>\n{fenced(CHILD)}</think>\n\n")


def test_snippets_beside_the_file_are_ignored():
    assert read(f"First:\n{SNIPPET}then\n{fenced(CHILD)}and\n{SNIPPET}").source == CHILD


def test_the_last_whole_file_counts():
    draft = fenced(CHILD.replace("1.0f", "2.0f"))
    manifest_alone = fenced(CHILD[: CHILD.index("*/") + 3])
    assert read(f"Draft:\n{draft}Final:\n{fenced(CHILD)}The manifest again:\n{manifest_alone}").source == CHILD


# R8


@pytest.mark.parametrize("text", [None, "", " \n\t", "\u200b\ufeff\n"])
def test_an_empty_reply_is_called_that(text):
    with pytest.raises(UnreadableReply, match="the reply is empty"):
        read(text)


@pytest.mark.parametrize("text", ["I can't help with that.", "I\u2019m sorry, but no.", "I cannot write this kernel."])
def test_a_refusal_is_called_that(text):
    with pytest.raises(UnreadableReply, match="the model declined"):
        read(text)


@pytest.mark.parametrize("finish_reason", ["refusal", "content_filter"])
def test_a_refusal_by_its_finish_reason_needs_no_words(finish_reason):
    for text in (None, fenced(CHILD)):
        with pytest.raises(UnreadableReply, match="the model declined"):
            read(text, finish_reason=finish_reason)


def test_an_apology_beside_code_is_no_refusal():
    assert read(f"I'm sorry for the delay.\n{EDIT}").source == CHILD


def test_words_without_code_are_no_answer_but_their_claim_is_kept():
    with pytest.raises(UnreadableReply, match="neither edit blocks nor a whole kernel") as caught:
        read("Hypothesis: it is at the roof.\nClaim: limit")
    assert type(caught.value) is UnreadableReply
    assert caught.value.notes == Notes(hypothesis="it is at the roof.", claim="limit")


# R9


@pytest.mark.parametrize(
    "text",
    [
        fenced(CHILD[CHILD.index("#include") :]),
        fenced(CHILD.replace("/*evo", "/*")),
        block('/*evo\ncontract = 1\nname = "one thread a row"', '/*\nname = "x"\n'),
    ],
)
def test_a_dropped_manifest_is_named(text):
    with pytest.raises(UnreadableReply, match=r"manifest, .*missing"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        fenced(CHILD.replace("*/\n", "")),
        fenced(CHILD.replace("*/\n", "").replace("// The score", "/* a comment */ // The score")),
        block('block = ["BLOCK_M"]\n*/', 'block = ["BLOCK_M"]\n'),
    ],
)
def test_a_manifest_that_is_never_closed_is_named(text):
    with pytest.raises(UnreadableReply, match="never closed"):
        read(text)


def test_a_manifest_without_a_kernel_is_no_file():
    with pytest.raises(UnreadableReply, match="no __global__ kernel"):
        read(fenced(CHILD[: CHILD.index("*/") + 3]))


def test_a_renamed_entry_point_is_the_judges_business():
    text = block(
        'extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {',
        'extern "C" __global__ void renamed(const __grid_constant__ AttentionParams params) {\n',
    )
    assert read(text).source == PARENT.replace("void attention_forward", "void renamed")


# R10


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("\u201cattention.cuh\u201d", '"attention.cuh"'),
        ("int\u00a0row", "int row"),
        ("float\u202fsum", "float sum"),
        ("head\u200b_dim", "head_dim"),
        ("\ufeff/*evo", "/*evo"),
        ("for\u2009(int d", "for (int d"),
        ("d \u2212 1", "d - 1"),
    ],
)
def test_odd_characters_in_a_file_are_mended(typed, meant):
    child = CHILD.replace("return sum;", "return sum * (d - 1);")
    text = child.replace(meant, typed)
    assert text != child
    assert read(fenced(text)).source == child


def test_odd_characters_in_an_edit_are_mended():
    text = EDIT.replace("    float", "\u00a0\u00a0\u00a0 float\u200b").replace("1.0f", "\u22121.0f")
    assert read(text).source == PARENT.replace("sum = 0.0f", "sum = -1.0f")


def test_comments_and_the_manifest_are_mended_too():
    text = CHILD.replace("// The score", "// The \u201cscore\u201d").replace('"batch"', "\u201cbatch\u201d")
    assert read(fenced(text)).source == CHILD.replace("// The score", '// The "score"')


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\u2028", "\x85", "\ud800"])
def test_characters_that_no_source_holds_are_refused(character):
    with pytest.raises(UnreadableReply, match=rf"U\+{ord(character):04X}"):
        read(fenced(CHILD.replace("int d", f"int{character}d")))
    with pytest.raises(UnreadableReply, match=rf"U\+{ord(character):04X}"):
        read(EDIT.replace("1.0f", f"1.0f{character}"))


def test_a_curly_quote_inside_a_string_is_refused():
    with pytest.raises(UnreadableReply, match="curly quote"):
        mended('printf("the \u201cfast\u201d path");')
    assert mended('f(\u201ca\u201d, "b", \u2018c\u2019);') == "f(\"a\", \"b\", 'c');"


# R11 and the rest


def test_braces_come_through():
    child = CHILD.replace("int row =", "int ids[] = {threadIdx.x}; {} // {0} {name} %s $x\n    int row =")
    assert read(fenced(child)).source == child


@pytest.mark.parametrize("second", [fenced(CHILD), fenced("@@ -1 +1 @@\n-a\n+b\n", "diff")])
def test_two_forms_in_one_reply_are_refused(second):
    with pytest.raises(UnreadableReply, match="two forms"):
        read(EDIT + second)


def test_a_fence_inside_the_files_fence_is_refused():
    with pytest.raises(UnreadableReply, match="opening of another"):
        read(f"```cuda\nint snippet;\n{fenced(CHILD)}")


def test_a_diff_without_hunks_is_named():
    with pytest.raises(UnreadableReply, match="no line @@"):
        read(fenced("-int a;\n+int b;\n", "diff"))


def test_code_outside_a_fence_is_no_answer():
    with pytest.raises(UnreadableReply, match="in a fence"):
        read(CHILD)


def test_a_reply_longer_than_any_kernel_is_refused():
    with pytest.raises(UnreadableReply, match="1000001 characters"):
        read("x" * 1_000_001)


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        ("Claim: limit", "limit"),
        ("**Claim:** Done.", "done"),
        ("claim: `none`", "none"),
        ("Claim: limit, nothing is left", "limit"),
        ("Claim: limit|done|none", ""),
        ("Claim: limitless", ""),
        ("I claim: limit", ""),
        ("Claim:", ""),
    ],
)
def test_the_claim_is_one_of_three_words(line, claim):
    assert read(f"{line}\n{EDIT}").notes.claim == claim


@pytest.mark.parametrize(
    ("text", "hypothesis", "change", "expectation"),
    [
        ("**Hypothesis.** One\ntwo.\n\n**Changed**\n- a\n- b\n**Expected:** +3 %", "One\ntwo.", "- a\n- b", "+3 %"),
        ("# Hypothesis\nOne\n# Changes\na\n# Expectation\nfaster", "One", "a", "faster"),
        ("- Hypothesis: One\n- Change: a\n- Expect: b", "One", "a", "b"),
        ("Changed minds expect little.\nHypothesis: One", "One", "", ""),
        ("Hypothesis: One\nHypothesis: two", "One", "", ""),
        ("", "", "", ""),
    ],
)
def test_labels_are_read_as_models_write_them(text, hypothesis, change, expectation):
    assert read(f"{text}\n\n{EDIT}\nHypothesis: not this one" if hypothesis else EDIT).notes == Notes(
        hypothesis=hypothesis, change=change, expectation=expectation
    )


def test_a_note_ends_where_the_code_begins():
    assert read(f"Expect: more\n{EDIT}that was the change").notes.expectation == "more"


PIECES = st.sampled_from(
    [
        "```", "```cuda", "~~~", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "<think>", "</think>", "@@",
        "@@ -1 +1 @@",
        "/*evo", "*/", "__global__", "    float sum = 0.0f;", "-    float sum = 0.0f;", "+x", " ", "", "\\",
        "Claim: limit", "\u201c", "\u00a0", "\u200b", "\r", "\x00", "```diff", "Hypothesis:", "return sum;", CHILD,
        EDIT,
    ]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES | st.text(max_size=8), max_size=25), st.sampled_from(["stop", "", "tool_calls"]))
def test_no_reply_crashes_the_reader(pieces: list[str], finish_reason: str):
    try:
        answer = read_reply("\n".join(pieces), PARENT, finish_reason)
    except UnreadableReply:
        return
    assert answer.source != PARENT
    assert "/*evo" in answer.source
    answer.source.encode()


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=300))
def test_a_file_comes_through_as_it_was_written(body: str):
    child = CHILD + "".join(f"// {line}\n" for line in body.split("\n"))
    if "/*" in body or "*/" in body:
        return
    assert read(f"{NOTES}{fenced(child)}").source == child


@settings(deadline=None)
@given(st.sampled_from(PARENT.split("\n")[16:-1]), st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_an_edit_makes_exactly_its_own_change(line: str, replacement: str):
    if PARENT.split("\n").count(line) != 1 or not line.strip() or replacement.rstrip() == line:
        return
    expected = "\n".join(replacement if old == line else old for old in PARENT.split("\n"))
    if "__global__" in expected:
        assert read(block(line, replacement + "\n")).source == expected


@pytest.mark.parametrize(
    "piece",
    ["```\n", "~~~cuda\n", "`", "<think>", "</think>\n", "<<<<<<< SEARCH\n", "@@ ", "/*evo\n",
     "```cuda\n/*evo\n*/\n```\n", "```diff\n@@\n-a\n```\n", "\u201c", '"', "Claim: ", "***", "\r", "I can", EDIT],
)  # fmt: skip
def test_long_repetitions_are_refused_without_delay(piece):
    for text in (piece * (200_000 // len(piece)), "x" + piece * (100_000 // len(piece)) + '"'):
        with pytest.raises(UnreadableReply):
            read(text)


def test_a_note_steers_no_terminal():
    assert read(f"Change: wider\x1b[2J tiles\x07\n{EDIT}").notes.change == "wider?[2J tiles?"
