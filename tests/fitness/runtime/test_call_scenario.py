"""Tensors read as a scenario: what fits together, and one line about what does not."""

import pytest
import torch

from fitness.runtime.call_scenario import call_scenario
from fitness.scenario import ElementType, Scenario


def tensor(*shape, dtype=torch.bfloat16, device="cpu"):
    return torch.empty(shape, dtype=dtype, device=device)


def test_a_call_is_its_shapes():
    q, k = tensor(2, 33, 8, 64, dtype=torch.float16), tensor(2, 131, 2, 64, dtype=torch.float16)
    assert call_scenario(q, k, k, causal=True) == Scenario(
        batch=2, heads=8, kv_heads=2, seqlen_q=33, seqlen_k=131, head_dim=64, causal=True,
        element_type=ElementType.FP16,
    )  # fmt: skip


Q, K = tensor(2, 5, 4, 64), tensor(2, 7, 2, 64)


@pytest.mark.parametrize(
    ("q", "k", "v", "message"),
    [
        (Q[0], K, K, "q has the shape [5, 4, 64]; expected four dimensions, [batch, seqlen, heads, head_dim]"),
        (Q, K, K[:, :6], "k has the shape [2, 7, 2, 64] and v [2, 6, 2, 64]; expected the same"),
        (Q, K[:1], K[:1], "q has the shape [2, 5, 4, 64] and k [1, 7, 2, 64]; expected the same batch and head_dim"),
        (Q, K[..., :32], K[..., :32], "q has the shape [2, 5, 4, 64] and k [2, 7, 2, 32]; expected the same batch and"),
        (Q.float(), K, K, "the element types are q torch.float32, k torch.bfloat16, v torch.bfloat16; expected bfl"),
        (Q.float(), K.float(), K.float(), "expected bfloat16 or float16, one for all three"),
        (Q, K.half(), K.half(), "expected bfloat16 or float16, one for all three"),
        (Q, K.to("meta"), K, "the tensors lie on several devices (q on cpu, k on meta, v on cpu); expected one"),
        (Q[:, :, :3], K, K, "q has 3 heads and k and v 2; expected a number of heads in q that theirs divides"),
        (Q[:, :0], K, K, "q has the shape [2, 0, 4, 64]; expected sizes of at least 1, [batch, seq"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(q, k, v, message):
    with pytest.raises(ValueError, match="expected") as caught:
        call_scenario(q, k, v, causal=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "value", "came"), [("q", None, "NoneType"), ("v", [1.0], "list")])
def test_what_is_no_tensor_is_named(name, value, came):
    expected = rf"^{name} is {came}; expected a tensor, \[batch, seqlen, heads, head_dim\]$"
    with pytest.raises(TypeError, match=expected):
        call_scenario(**{"q": Q, "k": K, "v": K, name: value}, causal=False)
