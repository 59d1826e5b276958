"""Some rows of an output judged as an attention of their own."""

import random
from dataclasses import replace

import pytest
import torch

from fitness.gate import Case
from fitness.inputs import Distribution, draw_inputs
from fitness.row_sample import MOST_ROWS, Block, blind_rows, draw_block, judge_rows, not_finite
from tests.fitness.fake_device import empty_tensors, right, scenario

CASE = Case(scenario="s", distribution="normal", stage="some rows", input_seed=1)
SHAPES = [
    scenario(batch=2, heads=6, kv_heads=2, seqlen_q=200, seqlen_k=200),
    scenario(batch=2, heads=6, kv_heads=2, seqlen_q=200, seqlen_k=333, causal=False),
    scenario(batch=3, heads=4, kv_heads=4, seqlen_q=70, seqlen_k=500),
    scenario(batch=3, heads=8, kv_heads=2, seqlen_q=1, seqlen_k=300, causal=False),
    scenario(batch=1, heads=4, kv_heads=1, seqlen_q=150, seqlen_k=40),
]


def computed(shape, distribution=Distribution.NORMAL, rng_seed=1):
    tensors = empty_tensors(shape)
    draw_inputs(distribution, rng_seed, tensors.q, tensors.k, tensors.v)
    right(tensors, shape)
    return tensors


def blocks(shape, count, rng_seed=1):
    rng = random.Random(rng_seed)
    return [draw_block(shape, rng) for _ in range(count)]


@pytest.mark.parametrize("distribution", Distribution)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_block_of_a_right_output_is_right(shape, distribution):
    found = computed(shape, distribution)
    for block in blocks(shape, 12):
        check = judge_rows(found, shape, [block], CASE)
        assert check.passed, check.reason
        assert check.relative_rms_error < 0.01
        assert check.lse_max_error < 1e-4 * max(1.0, float(found.lse[found.lse.isfinite()].abs().max()))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_fault_is_found_in_its_block_and_in_no_other(shape):
    found = computed(shape)
    block = draw_block(shape, random.Random(3))
    group, row = shape.heads // shape.kv_heads, block.first_row + block.rows - 1
    head = block.kv_head * group + group - 1
    found.o[block.entry, row, head] *= 1.1
    check = judge_rows(found, shape, [block], CASE)
    assert not check.passed
    assert check.reason.startswith(f"in {block}: ")
    assert f"query {block.rows - 1}, head {group - 1}" in check.reason
    for other in blocks(shape, 30):
        touched = (other.entry, other.kv_head) == (block.entry, block.kv_head)
        touched = touched and other.first_row <= row < other.first_row + other.rows
        assert judge_rows(found, shape, [other], CASE).passed is not touched


def test_lse_of_a_block_is_judged_too():
    shape = SHAPES[0]
    found = computed(shape)
    found.lse.add_(0.05)
    check = judge_rows(found, shape, blocks(shape, 1), CASE)
    assert "lse: largest error 0.05" in check.reason


def test_the_first_wrong_block_speaks_and_else_the_one_nearest_to_its_bound():
    shape = SHAPES[1]
    found = computed(shape)
    some = blocks(shape, 4)
    shares = [judge_rows(found, shape, [block], CASE) for block in some]
    nearest = max(shares, key=lambda check: check.relative_rms_error / check.relative_rms_bound)
    assert judge_rows(found, shape, some, CASE) == nearest


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["o", "lse"])
def test_what_is_not_finite_is_found_wherever_it_is(name, value):
    shape = SHAPES[0]
    found = computed(shape)
    block = Block(entry=0, kv_head=0, first_row=0, rows=8)
    getattr(found, name)[1, -1, -1] = value
    check = judge_rows(found, shape, [block], CASE)
    assert not check.passed
    assert check.reason == f"{name}: {32 if name == 'o' else 1} elements are NaN or infinite"


def test_rows_that_see_no_key_may_have_no_lse():
    shape = SHAPES[4]
    found = computed(shape)
    assert blind_rows(shape) == 110
    assert bool((found.lse[:, :, :110] == -torch.inf).all())
    assert not_finite(found, shape) == ""
    assert blind_rows(replace(shape, causal=False)) == blind_rows(SHAPES[2]) == 0


@pytest.mark.parametrize(("name", "value"), [("o", 2.0**-30), ("lse", 0.0), ("lse", torch.nan)])
def test_rows_that_see_no_key_are_nothing_all_of_them(name, value):
    shape = SHAPES[4]
    found = computed(shape)
    getattr(found, name)[0, 0, 0] = value  # no block has the first row
    reason = "a row that sees no key needs zeros in o and -inf in lse; 1 rows lack them"
    assert judge_rows(found, shape, blocks(shape, 1), CASE).reason == reason


@pytest.mark.parametrize("lengths", [(1000, 1000), (1000, 600)])
def test_the_first_and_the_last_row_are_drawn_as_often_as_any_other(lengths):
    shape = scenario(batch=1, heads=1, seqlen_q=lengths[0], seqlen_k=lengths[1])
    counts = torch.zeros(1000)
    for block in blocks(shape, 20_000):
        counts[block.first_row : block.first_row + block.rows] += 1
    expected = 20_000 * MOST_ROWS / (1000 - blind_rows(shape) + 2 * MOST_ROWS)
    assert counts[blind_rows(shape)] > 0.8 * expected
    assert counts[-1] > 0.8 * expected


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_blocks_lie_within_the_output_and_reach_all_of_it_that_sees_a_key(shape):
    reached = torch.zeros(shape.batch, shape.kv_heads, shape.seqlen_q, dtype=torch.bool)
    for block in blocks(shape, 2000):
        assert block.rows == min(MOST_ROWS, shape.seqlen_q)
        assert 0 <= block.first_row <= shape.seqlen_q - block.rows
        assert block.first_row + block.rows > blind_rows(shape)
        reached[block.entry, block.kv_head, block.first_row : block.first_row + block.rows] = True
    assert bool(reached[:, :, blind_rows(shape) :].all())
