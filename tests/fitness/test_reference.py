"""The reference against attention written down plainly in float64, whatever the chunks."""

import math

import pytest
import torch

from fitness.inputs import Distribution, draw_inputs
from fitness.reference import compute_reference
from fitness.scenario import ElementType
from tests.fitness.fake_device import empty_tensors, scenario

SHAPES = [
    scenario(seqlen_q=1, seqlen_k=1),
    scenario(batch=2, heads=6, kv_heads=2, seqlen_q=67, seqlen_k=67),
    scenario(seqlen_q=33, seqlen_k=131),
    scenario(heads=4, kv_heads=4, seqlen_q=131, seqlen_k=33),
    scenario(heads=4, kv_heads=2, seqlen_q=5, seqlen_k=259, causal=False),
    scenario(heads=1, kv_heads=1, seqlen_q=40, seqlen_k=40, element_type=ElementType.FP16),
]


def plainly(q, k, v, shape):
    q, k, v = (tensor.double() for tensor in (q, k, v))
    o, lse = torch.zeros_like(q), torch.full((shape.batch, shape.heads, shape.seqlen_q), -math.inf).double()
    for head in range(shape.heads):
        own = head // (shape.heads // shape.kv_heads)
        for query in range(shape.seqlen_q):
            seen = query + 1 + shape.seqlen_k - shape.seqlen_q if shape.causal else shape.seqlen_k
            if seen <= 0:
                continue
            scores = torch.einsum("bd,bkd->bk", q[:, query, head], k[:, :seen, own]) / math.sqrt(shape.head_dim)
            lse[:, head, query] = scores.logsumexp(-1)
            o[:, query, head] = torch.einsum("bk,bkd->bd", scores.softmax(-1), v[:, :seen, own])
    return o, lse


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_it_is_attention_whatever_the_chunks(shape):
    tensors = empty_tensors(shape)
    draw_inputs(Distribution.PEAKED, 3, tensors.q, tensors.k, tensors.v)
    o, lse = plainly(tensors.q, tensors.k, tensors.v, shape)
    for chunk_bytes in (None, 1, 3000, 60000):
        found = compute_reference(tensors.q, tensors.k, tensors.v, shape, chunk_bytes=chunk_bytes)
        assert_matches(found, o, lse)


def assert_matches(found, o, lse):
    torch.testing.assert_close(found.o.double(), o, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(found.lse.double(), lse, atol=1e-5, rtol=1e-5)
    assert found.low_precision_o.dtype in (torch.bfloat16, torch.float16)
    assert (found.low_precision_o.double() - o).norm() <= 0.05 * o.norm()


def test_a_row_that_sees_no_key_is_zero_with_an_lse_of_minus_infinity():
    shape = scenario(heads=2, kv_heads=2, seqlen_q=70, seqlen_k=6)
    tensors = empty_tensors(shape)
    draw_inputs(Distribution.NORMAL, 1, tensors.q, tensors.k, tensors.v)
    found = compute_reference(tensors.q, tensors.k, tensors.v, shape, chunk_bytes=500)
    assert (found.lse[..., :64] == -math.inf).all()
    assert found.lse[..., 64:].isfinite().all()
    assert (found.o[:, :64] == 0).all()
    assert (found.low_precision_o[:, :64] == 0).all()
    torch.testing.assert_close(found.o[:, 64], tensors.v[:, 0].float())  # the first row to see a key sees one


def test_the_low_precision_output_errs_as_torch_does_in_that_type():
    shape = scenario(heads=8, kv_heads=8, seqlen_q=256, seqlen_k=256, head_dim=64, causal=False)
    tensors = empty_tensors(shape)
    draw_inputs(Distribution.NORMAL, 1, tensors.q, tensors.k, tensors.v)
    found = compute_reference(tensors.q, tensors.k, tensors.v, shape)
    q, k, v = (tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v))
    in_type = ((q @ k.mT) * 0.125).softmax(-1) @ v
    ours, torchs = ((each.float() - found.o).norm() for each in (found.low_precision_o, in_type.transpose(1, 2)))
    assert ours.item() == pytest.approx(torchs.item(), rel=0.1)
    assert 0.001 < ours.item() / found.o.norm().item() < 0.01


def test_tf32_stays_as_it_was():
    before = torch.backends.cuda.matmul.allow_tf32
    tensors = empty_tensors(scenario())
    compute_reference(tensors.q, tensors.k, tensors.v, scenario())
    assert torch.backends.cuda.matmul.allow_tf32 is before
