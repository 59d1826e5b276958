"""A call's tensors read as a scenario, or what is wrong with them in one line."""

import torch

from fitness.scenario import ElementType, Scenario

_ELEMENT_TYPES = {torch.bfloat16: ElementType.BF16, torch.float16: ElementType.FP16}
_LAYOUT = "[batch, seqlen, heads, head_dim]"


def call_scenario(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Scenario:
    """The scenario of a call: q `[batch, seqlen_q, heads, head_dim]`, k and v `[batch, seqlen_k, kv_heads, head_dim]`.

    Raises ValueError for tensors that do not belong together, or whose element type no kernel takes.
    """
    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        if tensor.dim() != 4:
            raise ValueError(f"{name} has the shape {_shown(tensor)}; expected four dimensions, {_LAYOUT}")
    if k.shape != v.shape:
        raise ValueError(f"k has the shape {_shown(k)} and v {_shown(v)}; expected the same")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q has the shape {_shown(q)} and k {_shown(k)}; expected the same batch and head_dim")
    if len({tensor.dtype for tensor in named.values()}) > 1 or q.dtype not in _ELEMENT_TYPES:
        came = ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())
        raise ValueError(f"the element types are {came}; expected bfloat16 or float16, one for all three")
    if len({tensor.device for tensor in named.values()}) > 1:
        came = ", ".join(f"{name} on {tensor.device}" for name, tensor in named.items())
        raise ValueError(f"the tensors lie on several devices ({came}); expected one")
    return Scenario(
        batch=q.shape[0],
        heads=q.shape[2],
        kv_heads=k.shape[2],
        seqlen_q=q.shape[1],
        seqlen_k=k.shape[1],
        head_dim=q.shape[3],
        causal=causal,
        element_type=_ELEMENT_TYPES[q.dtype],
    )


def _shown(tensor: torch.Tensor) -> str:
    return str(list(tensor.shape))
