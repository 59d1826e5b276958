"""The Hopper seed's schedule and its pipeline, modelled: who takes which tile when, and that nobody waits for ever.

Nothing runs on a GPU.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from fitness.manifest import read_manifest, with_knobs
from fitness.planner import plan_scenario
from fitness.scenario import ElementType, Scenario
from tests.fitness.hopper_model import Form, Pipeline

SOURCE = (Path(__file__).parents[2] / "kernels" / "seed" / "hopper.cu").read_text()
SM_COUNT = 132


def a_plan(shape, *, sm_count=SM_COUNT, knobs=None):
    batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, causal = shape
    scenario = Scenario(
        batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim,
        causal=bool(causal), element_type=ElementType.BF16,
    )  # fmt: skip
    return plan_scenario(read_manifest(with_knobs(SOURCE, knobs or {})), scenario, sm_count)


SHAPES = [
    # batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, causal
    (32, 32, 32, 512, 512, 64, 1),
    (4, 32, 32, 512, 512, 64, 0),
    (1, 16, 16, 16384, 16384, 128, 1),
    (2, 32, 8, 2048, 2048, 128, 1),
    (4, 32, 8, 512, 8192, 128, 1),
    (2, 16, 16, 2048, 512, 128, 0),
    (8, 14, 2, 1023, 1023, 64, 1),
    (3, 6, 2, 333, 70, 96, 1),
    (3, 6, 2, 70, 333, 192, 1),
    (1, 2, 1, 4224, 129, 256, 1),
    (5, 3, 1, 130, 1, 64, 1),
    (2, 3, 1, 131, 33, 128, 0),
    (2, 8, 8, 1025, 1024, 256, 1),
]
FORMS = [{}, {"WARPGROUPS_64": 2, "Q_REGISTERS_128": 0, "STAGES_64": 2}]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", FORMS)
def test_each_tile_of_queries_is_the_job_of_one_block_once(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs))
    taken = Counter(job[:3] for block in range(form.grid) for job in form.jobs(block))
    expected = {
        (batch, head, tile * form.block_m)
        for batch in range(shape[0]) for head in range(shape[1]) for tile in range(form.row_tiles)
    }  # fmt: skip
    assert set(taken) == expected
    assert set(taken.values()) == {1}


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        ((32, 32, 32, 512, 512, 64, 1), 0.98),
        ((1, 32, 32, 16384, 16384, 64, 1), 0.97),
        ((32, 16, 16, 512, 512, 128, 1), 0.98),
        ((1, 16, 16, 16384, 16384, 128, 1), 0.99),
        ((4, 32, 8, 512, 8192, 128, 1), 0.96),
        ((32, 8, 8, 512, 512, 192, 1), 0.96),
        ((4, 8, 8, 4096, 4096, 192, 1), 0.99),
    ],
)
def test_the_busiest_block_has_little_more_than_its_share_under_a_causal_mask(shape, share):
    form = Form(a_plan(shape))
    # A job's ends take about as long as 0.7 tiles of keys.
    loads = [sum(tiles + 0.7 for *_, tiles in form.jobs(block)) for block in range(form.grid)]
    assert share <= sum(loads) / form.grid / max(loads) <= 1.0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", FORMS)
def test_every_key_that_a_row_sees_is_visited_and_none_that_it_does_not_see_goes_unmasked(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs))
    seqlen_q, seqlen_k, causal = shape[3], shape[4], shape[6]
    for _, _, job_row, tiles in {job for block in range(form.grid) for job in form.jobs(block)}:
        for first_row in range(job_row, min(job_row + form.block_m, seqlen_q), 64):
            last_row = min(first_row + 63, seqlen_q - 1)
            offset = seqlen_k - seqlen_q if causal else seqlen_k
            first_sees, last_sees = (min(row + offset, seqlen_k - 1) for row in (first_row, last_row))
            seen = form.seen(first_row, tiles)
            assert 1 <= seen <= tiles
            assert last_sees < seen * form.block_n
            for tile in range(seen):
                whole = (tile + 1) * form.block_n - 1 <= first_sees
                assert whole or form.masked(first_row, tile, first=tile == seen - 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", FORMS)
def test_the_pipeline_ends_and_takes_scores_and_values_of_the_same_tiles(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs, sm_count=3))
    rng = random.Random(str(shape))
    for block in range(form.grid):
        jobs = form.jobs(block)[:9]
        for group, products in Pipeline(form, jobs, rng).run().items():
            pack = form.scenario.heads // form.scenario.kv_heads
            expected = [
                (batch, head // pack, tile, batch, head, row + group * 64)
                for batch, head, row, tiles in jobs
                for tile in reversed(range(form.seen(row + group * 64, tiles)))
            ]
            for kind in ("k", "v"):
                assert [product[1:] for product in products if product[0] == kind] == expected
