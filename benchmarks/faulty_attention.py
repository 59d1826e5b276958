"""Attention as a kernel of FlashAttention's kind rounds it, and ways in which such a kernel may be a little wrong."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fitness.scenario import Scenario

_CHUNK_BYTES = 1 << 30  # of float32 scores alive at a time


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: which part is rounded and how, or what else is off; as it stands, none."""

    family: str = "none"
    strength: str = ""
    part: str = ""  # q, k, v or p: goes through `rounding`
    rounding: Callable[[torch.Tensor], torch.Tensor] | None = None
    dropped: int = 0  # keys, from the middle of the sequence on
    shift: int = 0  # of the causal mask, in keys
    scale: float = 1.0
    lse_offset: float = 0.0

    def rounded(self, part: str, values: torch.Tensor) -> torch.Tensor:
        """The values as this fault leaves them, in their own type."""
        return self.rounding(values) if self.rounding is not None and part == self.part else values


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scenario: Scenario, fault: Fault
) -> tuple[torch.Tensor, torch.Tensor]:
    """o, in the element type, and lse of q `[batch, seqlen_q, heads, head_dim]`, k and v, one key head a query head.

    Scores and sums are float32; the probabilities, up to a factor of each row, and the result are rounded once.
    """
    queries, keys, values = (
        fault.rounded(name, tensor.float()).transpose(1, 2) for name, tensor in (("q", q), ("k", k), ("v", v))
    )
    o, lse = torch.empty_like(queries), torch.empty(queries.shape[:-1], device=q.device)
    rows = max(1, _CHUNK_BYTES // (4 * scenario.batch * scenario.heads * scenario.seqlen_k))
    for first in range(0, scenario.seqlen_q, rows):
        some = slice(first, first + rows)
        scores = queries[:, :, some] @ keys.mT * (fault.scale / math.sqrt(scenario.head_dim))
        _hide(scores, scenario, first, fault)
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top).exp_()
        total = weights.sum(-1, keepdim=True)
        weights = fault.rounded("p", weights.to(q.dtype).float())
        o[:, :, some] = weights @ values / total
        lse[:, :, some] = (top + total.log())[..., 0] + fault.lse_offset
    return o.transpose(1, 2).to(q.dtype), lse


def faults(seqlen: int, *, causal: bool) -> Iterator[Fault]:
    """Every fault of the sweep, family by family, each family from its weakest to its strongest."""
    for part in ("p", "q", "k", "v"):
        family = f"{part.upper()} rounded"
        for bits in (6, 5, 4):
            yield Fault(family=family, strength=f"{bits} bits", part=part, rounding=_to_bits(bits))
        yield Fault(family=family, strength="e4m3", part=part, rounding=_through(torch.float8_e4m3fn))
        yield Fault(family=family, strength="e5m2", part=part, rounding=_through(torch.float8_e5m2))
        yield Fault(family=f"{part.upper()} through fp16", strength="fp16", part=part, rounding=_through(torch.float16))
    dropped = 1
    while dropped <= seqlen // 16:
        yield Fault(family="keys dropped", strength=f"{dropped} of {seqlen}", dropped=dropped)
        dropped *= 2
    for shift in (1, -1) if causal else ():
        yield Fault(family=f"mask shifted by {shift:+d}", strength=f"{shift:+d}", shift=shift)
    for percent in (0.1, 0.2, 0.5, 1.0, 2.0):
        yield Fault(family="scale too large", strength=f"{percent:g} %", scale=1 + percent / 100)
    for offset in (1e-4, 1e-3, 3e-3, 1e-2, 3e-2):
        yield Fault(family="lse too large", strength=f"{offset:g}", lse_offset=offset)


def _hide(scores: torch.Tensor, scenario: Scenario, first_row: int, fault: Fault) -> None:
    columns = torch.arange(scenario.seqlen_k, device=scores.device)
    if scenario.causal:
        rows = torch.arange(first_row, first_row + scores.shape[-2], device=scores.device)[:, None]
        last = (rows + scenario.seqlen_k - scenario.seqlen_q + fault.shift).clamp_(min=0)  # a first row keeps one key
        scores.masked_fill_(columns > last, -torch.inf)
    if fault.dropped:
        middle = scenario.seqlen_k // 2
        scores[..., middle : middle + fault.dropped] = -torch.inf


def _to_bits(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Rounds float32 to so many explicit bits of mantissa; bf16 has 7."""
    cut = 23 - bits

    def rounded(values: torch.Tensor) -> torch.Tensor:
        return ((values.contiguous().view(torch.int32) + (1 << (cut - 1))) >> cut << cut).view(torch.float32)

    return rounded


def _through(narrow: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    largest = torch.finfo(narrow).max
    return lambda values: values.clamp(-largest, largest).to(narrow).float()
