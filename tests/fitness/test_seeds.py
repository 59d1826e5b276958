"""The portable seeds: right on every edge, with every knob, and clean under the rules."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fitness.backends.host import HostBackend
from fitness.backends.host_compiler import HostCompiler
from fitness.build_cache import BuildCache
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.manifest import read_manifest, with_knobs
from fitness.planner import plan_suite
from fitness.reference import compute_reference
from fitness.rules import check_rules
from fitness.scenario import ElementType, Scenario, Suite, edge_scenarios

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

KERNELS = Path(__file__).parents[2] / "kernels"
SHAPE = Scenario(batch=1, heads=4, kv_heads=2, seqlen_q=100, seqlen_k=150, head_dim=64, causal=True)
TILED = (KERNELS / "seed" / "tiled.cu").read_text(encoding="utf-8")
NAIVE = (KERNELS / "seed" / "naive.cu").read_text(encoding="utf-8")
KNOBS = read_manifest(TILED).knobs


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> HostCompiler:
    cache = BuildCache(tmp_path_factory.mktemp("builds"), suffix=".so")
    return HostCompiler(include_dir=KERNELS / "include", cache=cache, processes=2, timeout_s=60, memory_bytes=2 << 30)


def edges_of(*shapes: tuple[int, ElementType]) -> tuple[Scenario, ...]:
    return edge_scenarios(tuple(replace(SHAPE, head_dim=head_dim, element_type=kind) for head_dim, kind in shapes))


def assert_right(source: str, scenarios: tuple[Scenario, ...], compiler: HostCompiler) -> None:
    """Right by the gate on both orders of threads."""
    manifest = read_manifest(source)
    check_rules(source, manifest)
    plan = plan_suite(manifest, Suite(name="seeds", scenarios=scenarios), 1)
    binaries = {each.build: each.binary for each in compiler.compile(source, plan.builds)}
    backend = HostBackend(threads=1)
    for each in plan.scenarios:
        bound = backend.bind(each, binaries[each.build])
        for distribution in (Distribution.NORMAL, Distribution.LARGE):
            q, k, v = bound.tensors.q, bound.tensors.k, bound.tensors.v
            draw_inputs(distribution, 5, q, k, v)
            bound.poison()
            bound.replay.run()
            case = Case(scenario=each.scenario.name, distribution=distribution, stage="correctness", input_seed=5)
            check = judge(bound.tensors.o, bound.tensors.lse, compute_reference(q, k, v, each.scenario), case)
            assert check.passed, check
        assert bound.violations() == ""


@pytest.mark.parametrize("head_dim", [8, 40, 256])
def test_naive_is_right_at_every_edge(compiler, head_dim):
    assert_right(NAIVE, edges_of((head_dim, ElementType.BF16)), compiler)


def test_naive_is_right_in_fp16(compiler):
    assert_right(NAIVE, (SHAPE, *edges_of((64, ElementType.FP16))), compiler)


@pytest.mark.parametrize("head_dim", [64, 96, 128, 192, 256])
def test_tiled_is_right_at_every_edge(compiler, head_dim):
    assert_right(TILED, edges_of((head_dim, ElementType.BF16)), compiler)


def test_tiled_is_right_in_fp16(compiler):
    assert_right(TILED, (SHAPE, *edges_of((64, ElementType.FP16))), compiler)


@pytest.mark.parametrize(
    ("knob", "choice"),
    [(knob.name, choice) for knob in KNOBS for choice in knob.choices if choice != knob.value],
)
def test_tiled_is_right_with_every_single_knob_turned(compiler, knob, choice):
    assert_right(with_knobs(TILED, {knob: choice}), (SHAPE, *edges_of((64, ElementType.BF16))), compiler)


def test_tiled_is_right_with_many_knobs_turned_at_once(compiler):
    turned = {"BLOCK_M": 128, "BLOCK_N": 32, "LANES": 4, "ROWS": 8, "STAGE_FLOAT": 1, "CONTIGUOUS": 1, "EXP2": 1}
    assert_right(with_knobs(TILED, turned | {"UNROLL": 8, "RESCALE_ABOVE": 8}), (SHAPE,), compiler)


def test_the_knobs_of_tiled_cover_the_layers():
    assert len(KNOBS) >= 6
    assert {knob.layer.value for knob in KNOBS} == {"schedule", "launch", "memory", "instructions", "algorithm"}


@pytest.mark.parametrize(
    ("turned", "status"),
    [
        ({"BLOCK_M": 32, "ROWS": 8, "LANES": 4}, Status.UNSUPPORTED),  # half a warp
        ({"BLOCK_M": 128, "ROWS": 1, "LANES": 16}, Status.UNSUPPORTED),  # 2048 threads
        ({"BLOCK_M": 128, "BLOCK_N": 128, "STAGE_FLOAT": 1}, Status.INVALID),  # more shared memory than there is
    ],
)
def test_knobs_that_do_not_go_together_are_refused(turned, status):
    manifest = read_manifest(with_knobs(TILED, turned))
    with pytest.raises(CandidateFault) as raised:
        plan_suite(manifest, Suite(name="one", scenarios=(replace(SHAPE, head_dim=128),)), 1)
    assert raised.value.status is status


def test_seeds_say_which_head_dims_they_take():
    for source, head_dim in ((NAIVE, 264), (NAIVE, 12), (TILED, 40), (TILED, 288)):
        manifest = read_manifest(source)
        with pytest.raises(CandidateFault) as raised:
            plan_suite(manifest, Suite(name="one", scenarios=(replace(SHAPE, head_dim=head_dim),)), 1)
        assert raised.value.status is Status.UNSUPPORTED


def test_rows_that_see_no_key_are_exactly_zero(compiler):
    shape = replace(SHAPE, seqlen_q=200, seqlen_k=50)
    plan = plan_suite(read_manifest(TILED), Suite(name="one", scenarios=(shape,)), 1).scenarios[0]
    bound = HostBackend(threads=1).bind(plan, compiler.compile(TILED, [plan.build])[0].binary)
    draw_inputs(Distribution.NORMAL, 3, bound.tensors.q, bound.tensors.k, bound.tensors.v)
    bound.poison()
    bound.replay.run()

    assert torch.count_nonzero(bound.tensors.o[:, :150]) == 0
    assert bound.tensors.lse[:, :, :150].eq(-torch.inf).all()
    assert bound.tensors.lse[:, :, 150:].isfinite().all()
