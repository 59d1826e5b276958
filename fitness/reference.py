"""What attention of given inputs should be: in float32, and as plain PyTorch computes it in the element type.

The second is the yardstick of the gate: its distance from the first says how much error the element type brings.
Both come from one pass over chunks of the score matrix, so that memory stays bounded at any length.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from fitness.scenario import Scenario

CPU_CHUNK_BYTES = 2 << 20  # of float32 scores alive at a time; a few temporaries of that size stand beside them
GPU_CHUNK_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What an output's errors are held against: how large the results are, and how far off the element type brings one.

    Tensors of one number each on the reference's device, but for the first three.
    """

    o: torch.Tensor  # the reference's, rounded to the element type
    row_norms: torch.Tensor  # of the float32 o [batch, seqlen_q, heads]
    row_errors: torch.Tensor  # of the low-precision o, as shares of those [batch, seqlen_q, heads]
    norm: torch.Tensor  # of all of o, Euclidean, float64
    mean: torch.Tensor  # of |o|
    largest: torch.Tensor  # of |o|, rounded
    mean_error: torch.Tensor  # of the low-precision o
    largest_error: torch.Tensor  # of the low-precision o from the rounded one
    largest_lse: torch.Tensor  # of |lse|, where it is finite


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The expected results; a row that sees no key has zeros in both o and -inf in lse."""

    o: torch.Tensor  # float32 [batch, seqlen_q, heads, head_dim]
    lse: torch.Tensor  # float32 [batch, heads, seqlen_q], natural logarithm
    low_precision_o: torch.Tensor  # as o, in the element type: scores, probabilities and result each rounded to it

    @cached_property
    def yardstick(self) -> Yardstick:
        """Worked out once, however many outputs are held against this reference."""
        low = self.low_precision_o.float()
        rounded = self.o.to(self.low_precision_o.dtype)
        error, norms = low - self.o, torch.linalg.vector_norm(self.o, dim=-1)
        return Yardstick(
            o=rounded, row_norms=norms, row_errors=relative(torch.linalg.vector_norm(error, dim=-1), norms),
            norm=euclidean_norm(self.o), mean=self.o.abs().mean(), largest=rounded.abs().max().float(),
            mean_error=error.abs().mean(), largest_error=(low - rounded.float()).abs().max(),
            largest_lse=torch.where(self.lse == -torch.inf, 0.0, self.lse.abs()).max(),
        )  # fmt: skip


def relative(errors: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """errors / norms, and 0 where both are 0; an error where nothing may stand is infinite."""
    return torch.where(errors == 0, torch.zeros_like(errors), errors / norms)


def euclidean_norm(tensor: torch.Tensor) -> torch.Tensor:
    """The norm of all elements, in float64: 10^8 squares do not add up in float32."""
    norm: torch.Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float64)
    return norm


def compute_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scenario: Scenario, *, chunk_bytes: int | None = None
) -> Reference:
    """The attention of q, k and v, on their device, in both precisions.

    q `[batch, seqlen_q, heads, head_dim]`, k and v `[batch, seqlen_k, kv_heads, head_dim]`, in the element type.
    `chunk_bytes` bounds the float32 scores alive at a time; left out, it follows the kind of device.
    """
    budget = chunk_bytes or (CPU_CHUNK_BYTES if q.device.type == "cpu" else GPU_CHUNK_BYTES)
    # Each (batch, kv head) is a unit: its group of query heads shares its keys, which are never repeated.
    group = scenario.heads // scenario.kv_heads
    units, row_bytes = scenario.batch * scenario.kv_heads, 4 * group * scenario.seqlen_k
    by_group = (scenario.batch, scenario.seqlen_q, scenario.kv_heads, group, scenario.head_dim)
    q_units = q.reshape(by_group).permute(0, 2, 3, 1, 4).flatten(0, 1)
    k_units, v_units = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (k, v))
    o = torch.zeros_like(q_units, dtype=torch.float32)
    low = torch.zeros_like(q_units)
    lse = torch.full(q_units.shape[:-1], -torch.inf, device=q.device)
    rows = max(1, min(_longest_block(scenario), budget // row_bytes))
    units_at_once = max(1, budget // (row_bytes * rows))
    with _full_float32():
        for unit in range(0, units, units_at_once):
            some = slice(unit, unit + units_at_once)
            keys, values = k_units[some].float(), v_units[some].float()
            for first_row in range(0, scenario.seqlen_q, rows):
                block = slice(first_row, first_row + rows)
                _attend(
                    q_units[some, :, block], keys, values, first_row, scenario,
                    o[some, :, block], low[some, :, block], lse[some, :, block],
                )  # fmt: skip
    o, low = (
        tensor.view(scenario.batch, scenario.heads, scenario.seqlen_q, scenario.head_dim).transpose(1, 2).contiguous()
        for tensor in (o, low)
    )
    return Reference(o=o, lse=lse.view(scenario.batch, scenario.heads, scenario.seqlen_q), low_precision_o=low)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first_row: int, scenario: Scenario,
    o: torch.Tensor, low: torch.Tensor, lse: torch.Tensor,
) -> None:  # fmt: skip
    """Fill o, low and lse for one block of rows; q `[units, group, rows, head_dim]`, k and v float32."""
    rows = q.shape[2]
    offset = scenario.seqlen_k - scenario.seqlen_q
    seen = min(scenario.seqlen_k, first_row + rows + offset) if scenario.causal else scenario.seqlen_k
    if seen <= 0:
        return  # no row of the block sees a key: the zeros and -inf that stand there are right
    k, v = k[:, :seen], v[:, :seen]
    scaled_q = q.flatten(1, 2).float().mul_(1.0 / math.sqrt(scenario.head_dim))
    scores = torch.bmm(scaled_q, k.mT).view(*lse.shape, seen)
    if scenario.causal:
        _hide(scores, first_row + offset)
    low_scores = scores.to(low.dtype)
    peak, weights = scores.amax(-1), torch.softmax(scores, -1)
    lse.copy_(peak - weights.amax(-1).log())  # the greatest weight is exp(peak - lse)
    low_weights = torch.softmax(low_scores, -1)
    if scenario.causal and first_row + offset < 0:  # rows that see no key: NaN so far, for 0 / 0
        blind = peak == -torch.inf
        lse.masked_fill_(blind, -torch.inf)
        for each in (weights, low_weights):
            each.masked_fill_(blind[..., None], 0.0)
    o.copy_(torch.bmm(weights.flatten(1, 2), v).view(o.shape))
    low.copy_(_low_product(low_weights.flatten(1, 2), v).view(low.shape))


def _longest_block(scenario: Scenario) -> int:
    """Rows at a time: of a causal mask few enough that the keys which no row of a block sees are left out."""
    return max(256, -(-scenario.seqlen_q // 8)) if scenario.causal else scenario.seqlen_q


def _hide(scores: torch.Tensor, last_key: int) -> None:
    """Mask what rows of a block do not see; `last_key` is the last key that its first row sees, and so do all."""
    rows, seen = scores.shape[-2:]
    first_hidden = max(0, last_key + 1)
    rows_last = torch.arange(last_key, last_key + rows, device=scores.device)
    hidden = torch.arange(first_hidden, seen, device=scores.device) > rows_last[:, None]
    scores[..., first_hidden:].masked_fill_(hidden, -torch.inf)


def _low_product(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """weights · v as hardware multiplies in the element type: exact products, float32 sums.

    Processors without such units take a hundred times as long in the element type, for the same sums.
    """
    if weights.device.type == "cpu":
        return torch.bmm(weights.float(), v)
    return torch.bmm(weights, v.to(weights.dtype))


@contextmanager
def _full_float32() -> Iterator[None]:
    """TF32 off: with it the reference would be a candidate itself."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
