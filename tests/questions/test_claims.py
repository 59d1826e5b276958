import pytest

from questions.claims import declared
from questions.question import Moment

LIMITS = [
    "This is the limit.",
    "This is the practical limit of this hardware.",
    "I believe this is the hard limit for this design.",
    "With that, the kernel is at the roof.",
    "The kernel is now at its limit.",
    "The loop has reached the limit of the hardware.",
    "We have hit the ceiling.",
    "I see no further gain.",
    "No further gains are possible on this card.",
    "There is no more speedup to be had; the rest is launch.",
    "No room left for improvement.",
    "There is no room for further gains.",
    "Nothing is left to gain.",
    "There is nothing left to optimise here.",
    "There's nothing left.",
    "Nothing left to do.",
    "This kernel cannot be made any faster.",
    "It can't get faster.",
    "It can’t be improved.",
    "The kernel is already optimal.",
    "It is as fast as the hardware allows.",
    "We are at the point of diminishing returns.",
    "THIS IS THE LIMIT!",
    "**Result.** Two changes.\n- hd 64 gained 2 %\n- This is the limit.\n",
    "The order is better but this is the limit.",
    "Done. There is nothing left to gain.",
    "After these two changes the kernel is at the roof.",
]
DONE = [
    "Done.",
    "All done!",
    "I am done.",
    "We're finished.",
    "The work is complete.",
    "The optimization is finished.",
    "This is the final version.",
    "I will stop here.",
    "No further changes are needed.",
    "No more edits needed.",
    "There is nothing more to do.",
    "The kernel is done.",
]
NEITHER = [
    "",
    "Is this the limit?",
    "This is not the limit.",
    "I do not think this is the limit.",
    "This isn't the limit, and nothing suggests that it can't get faster.",
    "If hd 64 does not move, this is the limit.",
    "Whether the kernel is at the roof remains to be measured.",
    "The exponential unit is the only limit of the softmax at head dim 64.",
    "Shared memory's limit is 128 bytes a clock, and the queries take 32 of it.",
    "The product runs at the shared-memory limit.",
    "This is the limit on registers that ptxas sees: 168.",
    "The kernel is at 87 % of the roof.",
    "Once the store is done, the buffer is free.",
    "When the work is done, the barrier is released.",
    "The kernel is done with the key tile before the next one comes.",
    "Nothing is left to do between the exponentials and the packing.",
    "There is nothing left in the pipeline when the tile ends.",
    "No further gain at hd 128, +4 % at hd 64.",
    "No room left in registers for the queries.",
    "I expected no further gain from the mask, and found 3 %.",
    "Left alone on purpose: the block order.",
    "You asked whether \"this is the limit\": it gained 4 %.",
    "> This is the limit.\n\nIt gained 4 %.",
    "```\n// this is the limit\n// done.\n```\nTwo stages more.",
    "```cuda\n// nothing left to gain",
    "The flag `done` is set by the producer.",
    "The final version of the mask differs.",
    "Stop here would be early.",
    "The tile is finished by two warps.",
    "Never say that the kernel is at its limit.",
    "The parent claimed that this is the limit.",
    "Rescaling is no longer needed.",
    "The row sum is complete after the last tile.",
    "No further barrier is needed.",
    "The slot is handed back after the work is done.",
]  # fmt: skip


@pytest.mark.parametrize("reply", LIMITS)
def test_a_limit_in_words(reply):
    assert declared(reply) is Moment.LIMIT_DECLARED


@pytest.mark.parametrize("reply", DONE)
def test_an_end_in_words(reply):
    assert declared(reply) is Moment.DONE_DECLARED


@pytest.mark.parametrize("reply", NEITHER)
def test_neither(reply):
    assert declared(reply) is None


@pytest.mark.parametrize(
    ("claim", "reply", "moment"),
    [
        ("limit", "Two stages more.", Moment.LIMIT_DECLARED),
        (" Limit. ", "", Moment.LIMIT_DECLARED),
        ("done", "This is the limit.", Moment.DONE_DECLARED),
        ("none", "This is the limit.", None),
        ("no", "Done.", None),
        ("", "Done.", Moment.DONE_DECLARED),
        ("this is the limit of the card", "", Moment.LIMIT_DECLARED),
        ("more to come", "Nothing is left to gain.", Moment.LIMIT_DECLARED),
        ("more to come", "Two stages more.", None),
    ],
)
def test_the_replys_own_field(claim, reply, moment):
    assert declared(reply, claim) is moment


def test_a_long_reply_is_read_in_no_time():
    assert declared("no further " * 20_000 + "`" * 9_999 + '"' * 9_999) is None
