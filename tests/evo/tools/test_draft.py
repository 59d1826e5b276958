"""What a model may give for a draft, and what it is read as."""

import pytest
from small_search import SOURCE

from evo.tools.draft import read_draft
from evo.unreadable import UnreadableReply
from fitness.manifest import with_knobs

CHILD = with_knobs(SOURCE, {"STAGES": 2})
OLD, NEW = next(pair for pair in zip(SOURCE.splitlines(), CHILD.splitlines(), strict=True) if pair[0] != pair[1])
EDIT = f"<<<<<<< SEARCH\n{OLD}\n=======\n{NEW}\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "text",
    [
        CHILD,
        f"\n{CHILD}",
        CHILD.replace("\n", "\r\n"),
        f"```cuda\n{CHILD}```",
        f"Change: two stages\n\n```\n{CHILD}```\n",
        EDIT,
        f"```\n{EDIT}```",
    ],
)
def test_a_file_or_edits_make_the_same_draft(text):
    assert read_draft(text, SOURCE).strip() == CHILD.strip()


def test_a_file_may_quote_backticks():
    quoting = CHILD + "// ```` is no fence of ours, ``` neither\n"
    assert read_draft(quoting, SOURCE).strip() == quoting.strip()


@pytest.mark.parametrize("text", ["parent", " Parent\n", SOURCE, f"```\n{SOURCE}```"])
def test_the_parent_itself_may_be_looked_at(text):
    assert read_draft(text, SOURCE) == SOURCE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither edit blocks nor a whole kernel"),
        ("make it faster", "neither edit blocks nor a whole kernel"),
        (SOURCE.replace("/*evo", "/*"), "the manifest, the comment"),
        (EDIT.replace(OLD, "nowhere"), "stands nowhere in the kernel"),
        (EDIT.partition("====")[0], "ends before its line >>>>>>> REPLACE"),
    ],
)
def test_what_cannot_be_read_is_said_why(text, reason):
    with pytest.raises(UnreadableReply, match=reason):
        read_draft(text, SOURCE)


def test_a_fence_that_never_closes_is_cut_off():
    with pytest.raises(UnreadableReply, match="never closed"):
        read_draft(f"```cuda\n{CHILD}", SOURCE)
