"""Right kernels, however they round, pass on every kind of input; wrong and coarse ones fail at every length."""

import math
from dataclasses import dataclass, replace
from itertools import cycle

import pytest
import torch

from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.reference import compute_reference
from fitness.scenario import ElementType
from tests.fitness.fake_device import empty_tensors, scenario

FP8 = torch.float8_e4m3fn
SMALL_SHAPES = [
    scenario(seqlen_q=1, seqlen_k=1),
    scenario(heads=2, seqlen_q=64, seqlen_k=64, head_dim=64),
    scenario(batch=2, heads=2, kv_heads=2, seqlen_q=67, seqlen_k=67),
    scenario(heads=2, seqlen_q=131, seqlen_k=33),
    scenario(heads=4, seqlen_q=5, seqlen_k=259, causal=False, head_dim=128),
    scenario(heads=1, seqlen_q=128, seqlen_k=128, element_type=ElementType.FP16),
]


@dataclass(frozen=True, kw_only=True)
class Flash:
    """An online softmax over tiles of keys, and the ways in which it may go wrong."""

    tile: int = 64
    backwards: bool = False
    fixed_reference: bool = False  # one reference well above the maximum, for the whole row
    exact_weights: bool = False  # not rounded to the element type
    sums_rounded: bool = False  # the row sum is that of the rounded weights
    coarse: str = ""  # which of q, k, v, p goes through fp8
    scale: float = 1.0
    mask_shift: int = 0
    skipped_tile: int | None = None
    columns: int | None = None  # of head_dim in the scores

    def __call__(self, tensors, shape):
        """o in the element type and lse."""
        scores, v = self._scores(tensors, shape)
        tiles = range(0, shape.seqlen_k, self.tile)
        top = torch.full((*scores.shape[:-1], 1), -math.inf)
        if self.fixed_reference:
            top = scores.amax(-1, keepdim=True).ceil() + 3.0  # the largest weight has any mantissa
        total, o = torch.zeros_like(top), torch.zeros(*scores.shape[:-1], shape.head_dim)
        for start in reversed(tiles) if self.backwards else tiles:
            part = scores[..., start : start + self.tile]
            higher = torch.maximum(top, part.amax(-1, keepdim=True))
            safe = higher.masked_fill(higher == -math.inf, 0.0)
            weights, shrink = (part - safe).exp(), (top - safe).exp()
            narrow = FP8 if "p" in self.coarse else tensors.q.dtype
            rounded = weights if self.exact_weights else weights.to(narrow).float()
            total = total * shrink + (rounded if self.sums_rounded else weights).sum(-1, keepdim=True)
            o, top = o * shrink + rounded @ v[..., start : start + self.tile, :], higher
        blind = total == 0
        o, lse = (o / total).masked_fill(blind, 0.0), (top + total.log()).masked_fill(blind, -math.inf)
        return o.transpose(1, 2).to(tensors.q.dtype), lse[..., 0]

    def _scores(self, tensors, shape):
        q, k, v = (
            (tensor.to(FP8) if name in self.coarse else tensor).float().transpose(1, 2)
            for name, tensor in (("q", tensors.q), ("k", tensors.k), ("v", tensors.v))
        )
        k, v = (each.repeat_interleave(shape.heads // shape.kv_heads, dim=1) for each in (k, v))
        scores = q[..., : self.columns] @ k[..., : self.columns].mT * (self.scale / math.sqrt(shape.head_dim))
        if shape.causal:
            last = torch.arange(shape.seqlen_q)[:, None] + shape.seqlen_k - shape.seqlen_q + self.mask_shift
            scores.masked_fill_(torch.arange(shape.seqlen_k) > last, -math.inf)
        if self.skipped_tile is not None:
            scores[..., self.skipped_tile * self.tile :][..., : self.tile] = -math.inf
        return scores, v


RIGHT = {
    "as FlashAttention does": Flash(),
    "backwards, large tiles": Flash(tile=128, backwards=True),
    "a fixed reference": Flash(fixed_reference=True),
    "float32 throughout": Flash(exact_weights=True),
    "sums of rounded weights": Flash(sums_rounded=True),
    "a fixed reference, sums of rounded weights": Flash(fixed_reference=True, sums_rounded=True),
}
WRONG = {
    "fp8 weights": Flash(coarse="p"),
    "fp8 q": Flash(coarse="q"),
    "fp8 k": Flash(coarse="k"),
    "fp8 v": Flash(coarse="v"),
    "scale 0.5 % high": Flash(scale=1.005),
    "scale 0.5 % low": Flash(scale=0.995),
    "lse in base 2": lambda tensors, shape: _with_lse(tensors, shape, 1.0 / math.log(2.0)),
    "first tile of keys skipped": Flash(tile=16, skipped_tile=0),
    "last tile of keys skipped": Flash(tile=16, skipped_tile=-1),
    "a column of head_dim left out": Flash(columns=-1),
    "mean of v": lambda tensors, shape: _with_o(tensors, shape, tensors.v.float().mean(1, keepdim=True)),
    "zeros": lambda tensors, shape: _with_o(tensors, shape, torch.zeros(1)),
    "one key too many": Flash(mask_shift=1),
    "one key too few": Flash(mask_shift=-1),
}


def _with_lse(tensors, shape, factor):
    o, lse = Flash()(tensors, shape)
    return o, lse * factor


def _with_o(tensors, shape, values):
    o, lse = Flash()(tensors, shape)
    return torch.zeros_like(o) + values.repeat_interleave(shape.heads, dim=2) if values.ndim > 1 else o * 0, lse


def case(distribution=Distribution.NORMAL, rng_seed=1):
    return Case(scenario="s", distribution=distribution, stage="correctness", input_seed=rng_seed)


def judged(shape, kernel, distribution=Distribution.NORMAL, rng_seed=1):
    tensors = empty_tensors(shape)
    draw_inputs(distribution, rng_seed, tensors.q, tensors.k, tensors.v)
    reference = compute_reference(tensors.q, tensors.k, tensors.v, shape)
    return judge(*kernel(tensors, shape), reference, case(distribution, rng_seed))


@pytest.mark.parametrize("distribution", Distribution)
def test_right_kernels_pass_on_two_hundred_seeds(distribution):
    kernels, shapes = cycle(RIGHT.values()), cycle(SMALL_SHAPES + SMALL_SHAPES[:1])  # 6 and 7: every pair comes up
    for rng_seed in range(200):
        check = judged(next(shapes), next(kernels), distribution, rng_seed)
        assert check.passed, (rng_seed, check.reason)


@pytest.mark.parametrize("seqlen", [1024, 2048])
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_right_kernels_pass_at_length(kernel, seqlen):
    shape = scenario(heads=1, seqlen_q=seqlen, seqlen_k=seqlen, head_dim=64)
    check = judged(shape, kernel)
    assert check.passed, check.reason


@pytest.mark.parametrize("seqlen", [64, 256, 1024, 4096])
@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
def test_wrong_kernels_fail_on_normal_inputs_alone(kernel, seqlen):
    shape = scenario(heads=1, kv_heads=1, seqlen_q=min(seqlen, 1024), seqlen_k=seqlen, head_dim=64)
    assert not judged(shape, kernel).passed


@pytest.mark.parametrize("distribution", [Distribution.NORMAL, Distribution.PEAKED, Distribution.LARGE])
@pytest.mark.parametrize("seqlen", [128, 1024])
def test_twice_the_error_of_a_right_kernel_fails_however_large_the_scores_are(seqlen, distribution):
    """The bound does not follow the yardstick, whose scores are rounded to the element type."""
    shape = scenario(heads=2, kv_heads=2, seqlen_q=seqlen, seqlen_k=seqlen, head_dim=64, causal=False)
    honest = judged(shape, Flash(), distribution)
    coarse_v = judged(shape, Flash(coarse="v"), distribution)
    assert coarse_v.relative_rms_error > 2 * honest.relative_rms_error
    assert coarse_v.relative_rms_error > coarse_v.relative_rms_bound
    assert honest.relative_rms_error < 0.7 * honest.relative_rms_bound


def test_zeros_fail_where_all_values_are_small():
    check = judged(scenario(seqlen_q=256, seqlen_k=256), WRONG["zeros"], Distribution.SMALL)
    assert not check.passed
    assert check.max_error > check.max_error_bound
    assert check.relative_rms_error == pytest.approx(1.0)


def spoiled(o_change=None, lse_change=None, shape=None):
    """The verdict on a right output with one thing changed, at a length where it is lost in any mean."""
    shape = shape or scenario(heads=2, kv_heads=2, seqlen_q=1024, seqlen_k=1024, head_dim=64)

    def kernel(tensors, shape):
        o, lse = Flash()(tensors, shape)
        if o_change is not None:
            o_change(o)
        if lse_change is not None:
            lse_change(lse)
        return o, lse

    return judged(shape, kernel)


def test_a_right_output_has_all_its_figures_within_bounds():
    check = spoiled()
    assert check.passed
    assert check.reason == ""
    assert 0 < check.max_error <= check.max_error_bound
    assert 0 < check.relative_rms_error <= check.relative_rms_bound < 0.012
    assert 0 < check.mean_error <= check.mean_error_bound
    assert 0 < check.row_error <= check.row_error_bound
    assert 0 <= check.lse_max_error <= check.lse_max_bound


def test_one_late_row_that_is_three_percent_off_fails_and_is_named():
    def change(o):
        o[0, 1000, 1] *= 1.03

    check = spoiled(change)
    assert not check.passed
    assert check.max_error <= check.max_error_bound  # FlashAttention's rule does not see it
    assert check.relative_rms_error <= check.relative_rms_bound  # nor does a figure over all of o
    assert "one row 0.03" in check.reason
    assert "at batch 0, query 1000, head 1" in check.reason


def test_a_wrong_head_and_a_wrong_tile_fail():
    assert not spoiled(lambda o: o[:, :, 1].copy_(o[:, :, 0])).passed
    assert not spoiled(lambda o: o[:, -64:].copy_(o[:, -128:-64])).passed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_fails_and_is_named(value):
    def change(o):
        o[0, 900, 1, 7] = value

    check = spoiled(change)
    assert not check.passed
    assert "1 of 131072 elements are NaN or infinite, first at batch 0, query 900, head 1, column 7" in check.reason
    assert check.max_error is None
    assert check.relative_rms_error is None
    assert math.isfinite(check.max_error_bound)


def test_an_output_of_nothing_but_nan_fails():
    check = spoiled(lambda o: o.fill_(math.nan), lambda lse: lse.fill_(math.nan))
    assert not check.passed
    assert check.lse_max_error is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0])
def test_a_wrong_lse_fails(value):
    def change(lse):
        lse[0, 1, 500] = value

    check = spoiled(lse_change=change)
    assert not check.passed
    assert "lse: largest error" in check.reason
    assert "at batch 0, head 1, query 500" in check.reason


@pytest.mark.parametrize(
    ("o_value", "lse_value"), [(0.0, -1e30), (0.0, math.nan), (1e-30, -math.inf), (math.nan, -math.inf)]
)
def test_a_row_that_sees_no_key_is_exactly_nothing(o_value, lse_value):
    blind = scenario(heads=2, kv_heads=2, seqlen_q=96, seqlen_k=32)

    def change_o(o):
        o[0, 63, 1, 5] = o_value

    def change_lse(lse):
        lse[0, 1, 63] = lse_value

    assert spoiled(shape=blind).passed
    check = spoiled(change_o, change_lse, blind)
    assert not check.passed
    assert "a row that sees no key" in check.reason
    assert "first at batch 0, head 1, query 63" in check.reason


def test_the_labels_are_those_of_the_case():
    check = spoiled()
    assert (check.scenario, check.distribution, check.stage, check.input_seed) == ("s", "normal", "correctness", 1)


def test_the_bounds_follow_the_element_type():
    shape = scenario(heads=1, seqlen_q=256, seqlen_k=256, causal=False)
    bf16, fp16 = (
        judged(replace(shape, element_type=each), Flash()) for each in (ElementType.BF16, ElementType.FP16)
    )
    assert bf16.relative_rms_bound / fp16.relative_rms_bound == pytest.approx(8.0, rel=0.2)
    assert bf16.lse_max_bound / fp16.lse_max_bound == pytest.approx(8.0, rel=0.2)
