"""A few rows of an output, drawn by lot and held to all of the gate's rules, where a whole reference would be too dear.

Rows one after another, of one batch entry and of all query heads that share a key head, are an attention of their own:
that of the keys which their last row sees, under the same mask. So the reference and the rules are those of a whole.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from fitness.backends.backend import Tensors
from fitness.evaluation import ScenarioCheck
from fitness.gate import Case, judge
from fitness.reference import compute_reference
from fitness.scenario import Scenario

MOST_ROWS = 64  # of each query head


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows `first_row` to `first_row + rows` of the query heads that share `kv_head`, in one batch entry."""

    entry: int
    kv_head: int
    first_row: int
    rows: int

    def __str__(self) -> str:
        rows = f"{self.first_row} to {self.first_row + self.rows - 1}"
        return f"queries {rows} of batch {self.entry}, key head {self.kv_head}"


def draw_block(scenario: Scenario, rng: random.Random) -> Block:
    """One of a scenario's blocks; of rows that see no key there is one that does.

    It is drawn from all that have a row in common with o, and moved inside: the first and the last rows, which see the
    fewest keys and end a kernel's last tile, are in no fewer blocks than those between.
    """
    rows = min(MOST_ROWS, scenario.seqlen_q)
    lowest, highest = max(0, blind_rows(scenario) - rows + 1), scenario.seqlen_q - rows
    drawn = rng.randint(lowest - rows + 1, highest + rows - 1)
    return Block(
        entry=rng.randrange(scenario.batch), kv_head=rng.randrange(scenario.kv_heads),
        first_row=min(max(lowest, drawn), highest), rows=rows,
    )  # fmt: skip


def blind_rows(scenario: Scenario) -> int:
    """How many rows of each head, the first ones, see no key."""
    return max(0, scenario.seqlen_q - scenario.seqlen_k) if scenario.causal else 0


def judge_rows(found: Tensors, scenario: Scenario, blocks: Iterable[Block], case: Case) -> ScenarioCheck:
    """The verdict on the blocks of o and lse, on the inputs that lie beside them: that on the first which is wrong.

    Where none is, the one nearest to its bound. Whatever is not finite, and rows that see no key and are not nothing,
    are found in all of o and lse. `found` has the shapes of `Tensors`, all on one device.
    """
    checks = []
    for block in blocks:
        check = _judge_block(found, scenario, block, case)
        if not check.passed:
            return check
        checks.append(check)
    nearest = max(checks, key=lambda check: (check.relative_rms_error or 0.0) / check.relative_rms_bound)
    if complaint := not_finite(found, scenario) or not_nothing(found, scenario):
        return replace(nearest, passed=False, reason=complaint)
    return nearest


def not_finite(found: Tensors, scenario: Scenario) -> str:
    """What is NaN or infinite in o, or in lse where a row sees a key, in words; "" where nothing is."""
    seeing = {"o": found.o, "lse": found.lse[:, :, blind_rows(scenario) :]}
    counts = {name: int((~tensor.isfinite()).sum()) for name, tensor in seeing.items()}
    return "; ".join(f"{name}: {count} elements are NaN or infinite" for name, count in counts.items() if count)


def not_nothing(found: Tensors, scenario: Scenario) -> str:
    """How many of the rows that see no key lack zeros in o or -inf in lse, in words; "" where none does."""
    blind = blind_rows(scenario)
    if blind == 0:
        return ""
    wrong = (found.o[:, :blind] != 0).any(-1).transpose(1, 2) | (found.lse[:, :, :blind] != -torch.inf)
    count = int(wrong.sum())
    return f"a row that sees no key needs zeros in o and -inf in lse; {count} rows lack them" if count else ""


def _judge_block(found: Tensors, scenario: Scenario, block: Block, case: Case) -> ScenarioCheck:
    group, last = scenario.heads // scenario.kv_heads, block.first_row + block.rows
    seen = scenario.seqlen_k - scenario.seqlen_q + last if scenario.causal else scenario.seqlen_k
    some = replace(
        scenario, batch=1, heads=group, kv_heads=1, seqlen_q=block.rows, seqlen_k=min(seen, scenario.seqlen_k)
    )
    entry, key_head = slice(block.entry, block.entry + 1), slice(block.kv_head, block.kv_head + 1)
    rows, heads = slice(block.first_row, last), slice(block.kv_head * group, (block.kv_head + 1) * group)
    k, v = (tensor[entry, : some.seqlen_k, key_head] for tensor in (found.k, found.v))
    reference = compute_reference(found.q[entry, rows, heads], k, v, some)
    check = judge(found.o[entry, rows, heads], found.lse[entry, heads, rows], reference, case)
    return check if check.passed else replace(check, reason=f"in {block}: {check.reason}")
