"""A call's tensors read as a scenario, or what is wrong with them in one line."""

from collections.abc import Mapping
from typing import Any

import torch

from fitness.scenario import ElementType, Scenario

_ELEMENT_TYPES = {torch.bfloat16: ElementType.BF16, torch.float16: ElementType.FP16}
_check_value: Any = torch._check_value  # some versions of torch publish a type for it, and some do not
_LAYOUT = "[batch, seqlen, heads, head_dim]"


def call_scenario(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Scenario:
    """The scenario of a call: q `[batch, seqlen_q, heads, head_dim]`, k and v `[batch, seqlen_k, kv_heads, head_dim]`.

    Raises as `check_tensors` does.
    """
    check_tensors(q, k, v)
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


def check_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raises TypeError for what is no tensor, ValueError for tensors that do not belong together or no kernel takes.

    Sizes may be symbols, as where torch traces: each is compared by itself, so that nothing more is held fixed than
    what is checked.
    """
    named = {"q": q, "k": k, "v": v}
    require_tensors(named)
    for name, tensor in named.items():
        if tensor.dim() != 4:
            raise ValueError(f"{name} has the shape {_shown(tensor)}; expected four dimensions, {_LAYOUT}")
        for size in tensor.shape:
            _require(size >= 1, f"{name} has the shape {_shown(tensor)}; expected sizes of at least 1, {_LAYOUT}")
    for one, other in zip(k.shape, v.shape, strict=True):
        _require(one == other, f"k has the shape {_shown(k)} and v {_shown(v)}; expected the same")
    for place in (0, 3):
        came = f"q has the shape {_shown(q)} and k {_shown(k)}"
        _require(q.shape[place] == k.shape[place], f"{came}; expected the same batch and head_dim")
    divide = f"q has {q.shape[2]} heads and k and v {k.shape[2]}; expected a number of heads in q that theirs divides"
    _require(q.shape[2] % k.shape[2] == 0, divide)
    if len({tensor.dtype for tensor in named.values()}) > 1 or q.dtype not in _ELEMENT_TYPES:
        came = ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())
        raise ValueError(f"the element types are {came}; expected bfloat16 or float16, one for all three")
    if len({tensor.device for tensor in named.values()}) > 1:
        came = ", ".join(f"{name} on {tensor.device}" for name, tensor in named.items())
        raise ValueError(f"the tensors lie on several devices ({came}); expected one")


def require_tensors(named: Mapping[str, object]) -> None:
    """Raise TypeError for an argument that is no tensor."""
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {type(value).__name__}; expected a tensor, {_LAYOUT}")


def _require(condition: bool | torch.SymBool, message: str) -> None:
    """For a size that no trace knows torch checks it as the traced program runs."""
    _check_value(condition, lambda: message)


def _shown(tensor: torch.Tensor) -> str:
    return str(list(tensor.shape))
