"""The distributions hold what they are named for, and a seed gives the same bits again."""

import pytest
import torch

from fitness.inputs import DOMINANT_KEYS, Distribution, draw_inputs
from tests.fitness.fake_device import empty_tensors, scenario

SHAPE = scenario(batch=2, heads=4, kv_heads=2, seqlen_q=128, seqlen_k=256, head_dim=64)


def drawn(distribution, rng_seed=1):
    tensors = empty_tensors(SHAPE)
    draw_inputs(distribution, rng_seed, tensors.q, tensors.k, tensors.v)
    return tensors


def scores(tensors):
    q, k = tensors.q.float(), tensors.k.float().repeat_interleave(2, dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / 8.0


@pytest.mark.parametrize("distribution", Distribution)
def test_a_seed_gives_the_same_bits_whatever_lay_there_before(distribution):
    one, other = drawn(distribution), empty_tensors(SHAPE)
    for tensor in (other.q, other.k, other.v):
        tensor.fill_(torch.nan)
    draw_inputs(distribution, 1, other.q, other.k, other.v)
    assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in "qkv")


@pytest.mark.parametrize("distribution", Distribution)
def test_another_seed_gives_other_values_and_all_are_finite(distribution):
    one, other = drawn(distribution, 1), drawn(distribution, 2**48 - 1)
    for name in "qkv":
        assert not torch.equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).isfinite().all()


def test_q_k_and_v_are_drawn_apart():
    tensors = drawn(Distribution.NORMAL)
    assert not torch.equal(tensors.k, tensors.v)
    assert not torch.equal(tensors.q[:, :128, :2], tensors.k[:, :128])


@pytest.mark.parametrize(
    ("distribution", "spread"),
    [(Distribution.NORMAL, 1.0), (Distribution.PEAKED, 8.0), (Distribution.LARGE, 36.0), (Distribution.SMALL, 0.0004)],
)
def test_the_scores_are_as_wide_as_the_distribution_says(distribution, spread):
    assert scores(drawn(distribution)).std().item() == pytest.approx(spread, rel=0.05)


def test_large_scores_overflow_a_bare_exponential():
    assert scores(drawn(Distribution.LARGE)).exp().isinf().any()
    assert not scores(drawn(Distribution.PEAKED)).exp().isinf().any()


def test_a_few_keys_of_each_head_dominate():
    norms = drawn(Distribution.DOMINANT).k.float().norm(dim=-1)  # about 8 = √64, and 64 where raised
    raised = (norms > 30).sum(dim=1)
    assert raised.min().item() >= 1
    assert raised.max().item() <= DOMINANT_KEYS


def test_shifted_values_have_a_mean():
    tensors = drawn(Distribution.SHIFTED)
    assert tensors.v.float().mean().item() == pytest.approx(2.0, abs=0.05)
    assert tensors.k.float().mean().item() == pytest.approx(1.0, abs=0.05)
    assert tensors.q.float().mean().item() == pytest.approx(0.0, abs=0.05)
