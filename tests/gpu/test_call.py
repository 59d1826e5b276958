"""Both sides of the call: what reaches a kernel, bit for bit, and what lies around its tensors."""

import numpy as np
import pytest
import torch

from fitness.backends.cuda_graphs import GraphMaker
from fitness.inputs import Distribution, draw_inputs
from fitness.manifest import with_knobs
from fitness.scenario import ElementType
from tests.gpu.sources import kernel, rows, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]


def called(bound, rng_seed=0):
    """The tensors of one call on normal inputs."""
    tensors = bound.tensors
    draw_inputs(Distribution.NORMAL, rng_seed, tensors.q, tensors.k, tensors.v)
    bound.poison()
    bound.replay.run()
    return tensors


@pytest.mark.parametrize(("head_dim", "causal"), [(64, True), (80, False), (128, True), (256, False)])
def test_every_parameter_reaches_the_kernel_bit_for_bit(bind, head_dim, causal):
    scenario = shape(batch=3, heads=4, kv_heads=2, seqlen_q=5, seqlen_k=7, head_dim=head_dim, causal=causal)
    tensors = called(bind(kernel("parameters"), scenario))
    pointers = tensors.o.flatten().view(torch.int64)[:9].tolist()
    sizes = tensors.lse.flatten().view(torch.int32)[:8].tolist()
    assert pointers[:5] == [each.data_ptr() for each in (tensors.q, tensors.k, tensors.v, tensors.o, tensors.lse)]
    scratch, left_out, zeroed, none = pointers[5:]
    assert (left_out, none) == (0, 0)
    assert len({scratch, zeroed, *pointers[:5]}) == 7
    assert all(pointer % 1024 == 0 for pointer in pointers)
    scale = int(np.float32(head_dim**-0.5).view(np.int32))
    assert sizes == [3, 4, 2, 5, 7, head_dim, scale, int(causal)]


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("element_type", list(ElementType))
def test_tensor_maps_describe_their_tensors(bind, hopper, swizzle, element_type):
    scenario = shape(batch=2, heads=3, kv_heads=3, seqlen_q=100, seqlen_k=70, head_dim=128, element_type=element_type)
    bound = bind(with_knobs(kernel("copy_by_tma"), {"SWIZZLE": swizzle}), scenario)
    tensors = called(bound)
    o, k = tensors.o.view(torch.int16), tensors.k.view(torch.int16)
    assert torch.equal(o[:, :70], k)
    assert not o[:, 70:].any()  # beyond the end of k there are zeros
    assert bound.violations() == ""  # and beyond the end of o nothing is written
    assert not tensors.lse.flatten()[:32].any()  # the left-out map


def test_workspaces_hold_what_the_manifest_says_at_every_call(bind):
    """The one that is not zeroed holds NaN patterns, 1 in lse, and small numbers, 2 there, at one of two calls each."""
    bound = bind(kernel("workspaces"), shape())
    for _ in range(4):
        found = [called(bound).lse.flatten()[:2].tolist() for _ in range(2)]
        assert sorted(found) == [[1.0, 1.0], [2.0, 1.0]]
    timed = []
    for _ in range(2):
        bound.poison()
        bound.replay.time_ms()
        timed.append(bound.tensors.lse.flatten()[:2].tolist())
    assert sorted(timed) == [[1.0, 1.0], [2.0, 1.0]]
    bound.replay.run()  # without poison between the calls: zeroed is part of the call, poison is not
    assert bound.tensors.lse.flatten()[:2].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("tensor", ["q", "k", "v"])
@pytest.mark.parametrize("side", ["before", "behind"])
def test_whoever_reads_beside_an_input_reads_nan(bind, tensor, side):
    size = "o_size" if tensor == "q" else "k_size"
    start = f"{size} + row * 100" if side == "behind" else "-1 - row * 100"
    tensors = called(bind(rows("at last", f"*lse = to_float(params.{tensor}[{start}]);"), shape()))
    assert tensors.lse.isnan().all()


def test_outputs_are_poisoned_before_every_call(bind):
    bound = bind(rows(), shape())
    tensors = called(bound)
    assert tensors.o.isfinite().all()
    assert tensors.lse.isfinite().all()
    bound.poison()
    assert tensors.o.isnan().all()
    assert tensors.lse.isnan().all()


@pytest.mark.parametrize("place", ["o_size + 32767", "-32768"])
def test_guard_zones_reach_64_kib_to_each_side(bind, place):
    bound = bind(rows("at last", f"if (first) params.o[{place}] = to_element(0.0f);"), shape())
    assert bound.violations() == ""
    called(bound)
    assert bound.violations() == "the candidate wrote outside of o"


def test_the_same_call_gives_the_same_bits_and_a_positive_time(bind):
    bound = bind(rows(), shape())
    first = called(bound, rng_seed=1).o.clone()
    assert torch.equal(called(bound, rng_seed=1).o.view(torch.int16), first.view(torch.int16))
    assert not torch.equal(called(bound, rng_seed=2).o, first)
    assert all(bound.replay.time_ms() > 0.0 for _ in range(20))


def test_captures_that_are_gone_give_their_memory_back(backend):
    source = torch.ones(1 << 24, device=backend.device)  # 64 MiB, as is each output
    graphs = GraphMaker(backend.device, room=1.0)  # never enough is free
    outputs = []
    for _ in range(3):
        graphs.capture(lambda: outputs.append(source * 2.0))
        outputs.clear()
    reserved = torch.cuda.memory_reserved()
    for _ in range(20):
        graphs.capture(lambda: outputs.append(source * 2.0))
        outputs.clear()
    assert torch.cuda.memory_reserved() <= reserved + source.nbytes
