"""The operator on a device that computes with the reference: what is cached, copied, traced and refused."""

import itertools
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.reference import compute_reference
from fitness.runtime import attention_operator
from fitness.runtime.attention_operator import AttentionOperator

NUMBERS = itertools.count()


class Processor:
    """Attention by the reference, with a record of what was asked of it."""

    def __init__(self):
        self.prepared = []
        self.calls = []

    def prepare(self, scenario, tensors):
        self.prepared.append(scenario.name)
        assert tensors.o.shape == tensors.q.shape

        def call(q, k, v, o, lse, scale):
            assert all(tensor.is_contiguous() and tensor.data_ptr() % 64 == 0 for tensor in (q, k, v, o, lse))
            self.calls.append(scale)
            found = compute_reference(q * (scale * scenario.head_dim**0.5), k, v, scenario)
            o.copy_(found.o)
            lse.copy_(found.lse)

        return call


@pytest.fixture
def processor():
    return Processor()


@pytest.fixture
def opened():
    return []


def check(scenario):
    if scenario.head_dim == 72:
        raise CandidateFault(Status.UNSUPPORTED, "head_dim 72")


@pytest.fixture
def attention(processor, opened):
    def open_device(device):
        opened.append(device)
        return processor

    return AttentionOperator(f"evo_tests::attention_{next(NUMBERS)}", open_device, check)


def inputs(*, batch=2, heads=4, kv_heads=2, seqlen_q=9, seqlen_k=None, head_dim=16, dtype=torch.bfloat16):
    torch.manual_seed(1)
    q = torch.randn(batch, seqlen_q, heads, head_dim, dtype=dtype)
    k, v = torch.randn(2, batch, seqlen_k or seqlen_q, kv_heads, head_dim, dtype=dtype)
    return q, k, v


def expected(q, k, v, *, causal, scale=None):
    """By torch, in float32."""
    group = q.shape[2] // k.shape[2]
    queries, keys, values = (each.transpose(1, 2).float() for each in (q, k, v))
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = queries @ keys.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if causal:
        shown = torch.ones(scores.shape[2:], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~shown, -torch.inf)
    return (scores.softmax(-1) @ values).transpose(1, 2), scores.logsumexp(-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_a_call_gives_o_and_lse(attention, causal, scale):
    q, k, v = inputs(seqlen_k=13)
    o, lse = attention(q, k, v, causal=causal, softmax_scale=scale)
    right_o, right_lse = expected(q, k, v, causal=causal, scale=scale)
    torch.testing.assert_close(o.float(), right_o, atol=0.02, rtol=0.02)
    torch.testing.assert_close(lse, right_lse, atol=0.02, rtol=0.02)
    assert o.dtype == torch.bfloat16


def test_what_hangs_on_the_shape_is_done_once_a_shape(attention, processor, opened):
    short, long = inputs(seqlen_q=5), inputs(seqlen_q=7)
    for _ in range(3):
        attention(*short)
        attention(*long)
    attention(*short, causal=True)
    attention(*inputs(seqlen_q=5, dtype=torch.float16))
    assert processor.prepared == [
        "b2 h4/2 s5 d16 full bf16", "b2 h4/2 s7 d16 full bf16", "b2 h4/2 s5 d16 causal bf16",
        "b2 h4/2 s5 d16 full fp16",
    ]  # fmt: skip
    assert processor.calls == [0.25] * 8
    assert opened == [torch.device("cpu")]


def test_the_oldest_shape_makes_room(attention, processor):
    one = inputs(batch=1, heads=1, kv_heads=1, seqlen_q=1)
    for length in range(1, attention_operator.KEPT_CALLS + 2):
        k = torch.zeros(1, length, 1, 16, dtype=torch.bfloat16)
        attention(one[0], k, k)
    known = len(processor.prepared)
    attention(one[0], k, k)
    assert len(processor.prepared) == known == attention_operator.KEPT_CALLS + 1
    attention(*one)
    assert processor.prepared[-1] == processor.prepared[0]


def test_several_threads_prepare_a_shape_once(attention, processor):
    q, k, v = inputs()
    together, outputs = threading.Barrier(8), []

    def call():
        together.wait()
        outputs.append(attention(q, k, v)[0])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(processor.prepared) == 1
    assert len(outputs) == 8
    assert all(torch.equal(each, outputs[0]) for each in outputs)


def test_strided_and_misaligned_tensors_are_copied(attention):
    q, k, v = inputs()
    right = attention(q, k, v)
    packed = torch.stack([k, v], dim=2)  # [batch, seqlen, 2, kv_heads, head_dim]
    shifted = torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape).copy_(q)
    found = attention(shifted, packed[:, :, 0], packed[:, :, 1])
    assert torch.equal(found[0], right[0])
    assert torch.equal(found[1], right[1])
    turned = attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v)
    assert torch.equal(turned[0], right[0])
    assert turned[0].is_contiguous()


def test_tensors_that_do_not_fit_reach_no_device(attention, opened):
    q, k, v = inputs()
    with pytest.raises(ValueError, match="expected the same batch and head_dim"):
        attention(q, k[:1], v[:1])
    assert opened == []


def test_what_is_no_tensor_is_named(attention):
    q, _, v = inputs()
    with pytest.raises(TypeError, match=r"^k is NoneType; expected a tensor"):
        attention(q, None, v)


def test_a_shape_that_the_kernel_does_not_take_reaches_no_device(attention, opened):
    with pytest.raises(CandidateFault, match="head_dim 72"):
        attention(*inputs(head_dim=72))
    assert opened == []


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("q", "k", "message"),
    [
        (torch.zeros(2, 5, 4, 64, dtype=torch.bfloat16), meta(2, 5, 4, 64), "q on cpu, k on meta, v on meta"),
        (meta(2, 5, 4, 64, dtype=torch.float32), meta(2, 5, 4, 64, dtype=torch.float32), "q torch.float32"),
        (meta(2, 5, 2, 64), meta(2, 5, 3, 64), "q has 2 heads and k and v 3"),
        (meta(5, 4, 64), meta(5, 4, 64), "expected four dimensions"),
        (meta(2, 5, 4, 64), meta(1, 5, 4, 64), "expected the same batch and head_dim"),
    ],
)
def test_tracing_refuses_what_a_call_refuses(attention, q, k, message):
    with pytest.raises(ValueError, match=message):
        attention(q, k, k)


def test_torch_compile_is_told_what_does_not_fit(attention):
    torch.compiler.reset()
    compiled = torch.compile(lambda q, k, v: attention(q, k, v), fullgraph=True, backend="aot_eager", dynamic=True)
    q, k, v = inputs(heads=4, kv_heads=3)
    with pytest.raises(RuntimeError, match="expected a number of heads in q that theirs divides"):
        compiled(q, k, v)


def test_one_trace_serves_all_lengths(attention):
    """The checks hold no length fixed. Of the first sizes no two are equal, or torch would keep them so."""
    torch.compiler.reset()
    traced = []

    def backend(graph, _inputs):
        traced.append(graph)
        return graph

    compiled = torch.compile(lambda q, k, v: attention(q, k, v), fullgraph=True, backend=backend, dynamic=True)
    for length, keys, batch in ((9, 13, 3), (12, 7, 6), (5, 30, 5)):
        assert compiled(*inputs(seqlen_q=length, seqlen_k=keys, batch=batch))[0].shape == (batch, length, 4, 16)
    assert len(traced) == 1


def test_a_length_that_no_trace_knows(attention):
    torch.compiler.reset()

    def chosen(q, k, v, mask):
        keep = mask.nonzero().squeeze(1)
        return attention(q, k[:, keep], v[:, keep])[0]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(chosen, fullgraph=True, backend="aot_eager")
        q, k, v = inputs(seqlen_k=13)
        mask = torch.arange(13) % 2 == 0
        assert torch.equal(compiled(q, k, v, mask), chosen(q, k, v, mask))


def test_tracing_needs_shapes_alone(attention, opened):
    with FakeTensorMode():
        q = torch.empty(2, 33, 8, 64, dtype=torch.float16, device="cuda")
        k = torch.empty(2, 131, 2, 64, dtype=torch.float16, device="cuda")
        o, lse = attention(q, k, k, causal=True)
    assert (o.shape, o.dtype, o.device.type) == (q.shape, torch.float16, "cuda")
    assert (lse.shape, lse.dtype, lse.device.type) == ((2, 8, 33), torch.float32, "cuda")
    assert opened == []


def test_torch_compile_takes_it_whole_at_any_length(attention):
    torch.compiler.reset()

    def block(q, k, v):
        o, lse = attention(q * 2, k, v, causal=True)
        return o.flatten(2) + 1, lse

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (9, 12, 5):
        q, k, v = inputs(seqlen_q=length)
        for found, right in zip(compiled(q, k, v), block(q, k, v), strict=True):
            assert torch.equal(found, right)


def test_torch_finds_the_operator_sound(attention):
    operator = attention.torch_operator
    named = ("test_schema", "test_faketensor")
    found = torch.library.opcheck(operator, (*inputs(), True, None), test_utils=named)
    assert found == dict.fromkeys(named, "SUCCESS")


def test_it_is_a_forward_pass(attention):
    q, k, v = inputs()
    o, _ = attention(q.requires_grad_(), k, v)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        o.sum().backward()
