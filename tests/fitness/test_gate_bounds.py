"""Each of the gate's five bounds by itself: just inside of it an output passes, and just outside it alone refuses it.

The numbers are those of the rules as `fitness/gate.py` states them, written out once more.
"""

import re
from dataclasses import dataclass

import pytest
import torch

from fitness.gate import judge
from fitness.reference import Reference
from tests.fitness.test_gate import case

ROWS, COLUMNS, EPS = 8, 64, 2.0**-7  # of one head, in bf16


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Rows of `ones` ones, zeros behind them; every error stands in the zeros, where bf16 has room for any number."""

    ones: int = 32
    lse: float = 0.0
    pt: float = 0.0  # what PyTorch in the element type makes of each zero

    @property
    def reference(self):
        o = torch.zeros(1, ROWS, 1, COLUMNS)
        o[..., : self.ones] = 1.0
        low = o.bfloat16()
        low[..., self.ones :] = self.pt
        return Reference(o=o, lse=torch.full((1, 1, ROWS), self.lse), low_precision_o=low)

    def complaints(self, *, everywhere=0.0, in_one_row=0.0, in_one_element=0.0, of_lse=0.0):
        """What the gate says where the zeros, those of the last row, one of them, or one lse are so far off."""
        expected = self.reference
        o, lse = expected.o.clone(), expected.lse.clone()
        o[..., self.ones :] = everywhere
        o[0, -1, 0, self.ones :] += in_one_row
        o[0, -1, 0, -1] += in_one_element
        lse[0, 0, -1] += of_lse
        reason = judge(o.bfloat16(), lse, expected, case()).reason
        return [each for each in reason.split("; ") if each]


# By case: the rule, the outputs, how the error comes about, and the error at which it breaks the rule.
# Every zero e: e * sqrt(zeros / ones) of all of o, and of each row; e * zeros / 64 in the mean, of ones / 64.
PINS = {
    "largest, without an error of PyTorch's": ("o: largest error", Plain(), "in_one_element", 2 * EPS),
    "largest, beside PyTorch's": ("o: largest error", Plain(pt=EPS), "in_one_element", 2 * EPS + 2 * EPS),
    "all of o": ("o: relative RMS error", Plain(ones=48), "everywhere", (0.55 + 1 / ROWS) * EPS * 3**0.5),
    "mean, without an error of PyTorch's": ("o: mean error", Plain(ones=8), "everywhere", 0.75 * EPS * 8 / 56),
    "mean, beside PyTorch's": (
        "o: mean error", Plain(ones=8, pt=EPS / 16), "everywhere", 1.5 * EPS / 16 + 0.75 * EPS * 8 / 56
    ),
    "row, without an error of PyTorch's": ("o: relative RMS error of one row", Plain(), "in_one_row", EPS),
    "row, beside PyTorch's": ("o: relative RMS error of one row", Plain(pt=EPS / 4), "in_one_row", EPS / 4 + EPS),
    "lse": ("lse: largest error", Plain(), "of_lse", 0.75 * EPS),
    "lse, a large one": ("lse: largest error", Plain(lse=1024.0), "of_lse", 0.75 * EPS + 1024 * 2.0**-16),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "plain", "place", "bound"), PINS.values(), ids=PINS)
def test_each_bound_alone_divides_what_lies_a_hundredth_inside_of_it_from_what_lies_outside(rule, plain, place, bound):
    assert plain.complaints(**{place: 0.99 * bound}) == []
    [complaint] = plain.complaints(**{place: 1.01 * bound})
    assert re.fullmatch(rf"{rule} [\d.]+, allowed [\d.]+( at .*)?", complaint)
