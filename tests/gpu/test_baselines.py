"""The baselines: right wherever they say that they can compute, named where they cannot or are not there."""

import os

import pytest
import torch

from evo.suites import load_suite
from fitness.backends.backend import Tensors
from fitness.baselines.selection import build_baseline, check_baseline
from fitness.faults import BaselineUnavailableError
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.reference import compute_reference
from fitness.scenario import ElementType, Suite
from tests.gpu.sources import shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

SEEDS = int(os.environ.get("GPU_TEST_SEEDS", "2"))
TORCHS_MASK = "torch aligns the causal mask top-left, not bottom-right, where the lengths differ"
SHAPES = tuple(
    shape(batch=2, heads=4, kv_heads=kv_heads, seqlen_q=q, seqlen_k=k, head_dim=head_dim, causal=causal, element_type=e)
    for e in ElementType
    for head_dim in (64, 128, 256)
    for kv_heads in (4, 2)
    for q, k, causal in ((200, 200, True), (200, 200, False), (33, 131, True), (131, 33, True), (1, 515, False))
)


@pytest.fixture(scope="module")
def baselines(hopper):
    """Those that a Hopper machine has, by name."""
    return {name: build_baseline(name) for name in ("fa3", "cudnn", "sdpa")}


def complaints(baseline, scenario, distribution, rng_seed):
    """What the gate says against each of a baseline's settings."""
    element = torch.bfloat16 if scenario.element_type is ElementType.BF16 else torch.float16
    q = torch.empty(scenario.batch, scenario.seqlen_q, scenario.heads, scenario.head_dim, dtype=element, device="cuda")
    k, v = (q.new_empty(scenario.batch, scenario.seqlen_k, scenario.kv_heads, scenario.head_dim) for _ in range(2))
    lse = torch.empty(scenario.batch, scenario.heads, scenario.seqlen_q, device="cuda")
    draw_inputs(distribution, rng_seed, q, k, v)
    calls = baseline.calls(Tensors(q=q, k=k, v=v, o=torch.empty_like(q), lse=lse), scenario)
    reference = compute_reference(q, k, v, scenario)
    found = []
    for setting, call in calls.items():
        case = Case(scenario=scenario.name, distribution=distribution, stage="baseline", input_seed=rng_seed)
        check = judge(call(), reference.lse, reference, case)
        if not check.passed:
            found.append(f"{scenario.name}, {distribution}, seed {rng_seed}, {setting}: {check.reason}")
    return found


@pytest.mark.parametrize("name", ["fa3", "cudnn", "sdpa"])
def test_a_baseline_is_right_wherever_it_says_that_it_can_compute(baselines, name):
    able = [scenario for scenario in SHAPES if not baselines[name].cannot(scenario)]
    assert len(able) >= len(SHAPES) // 2
    assert [each for scenario in able for each in complaints(baselines[name], scenario, Distribution.NORMAL, 1)] == []


@pytest.mark.parametrize(
    ("name", "scenario", "reason"),
    [
        ("sdpa", shape(seqlen_q=33, seqlen_k=131), TORCHS_MASK),
        ("cudnn", shape(seqlen_q=131, seqlen_k=33), TORCHS_MASK),
        ("sdpa", shape(seqlen_q=33, seqlen_k=131, causal=False), ""),
        ("fa3", shape(seqlen_q=33, seqlen_k=131), ""),
        ("fa3", shape(head_dim=264), "head_dim must be a multiple of 8, at most 256"),
        ("fa3", shape(head_dim=60), "head_dim must be a multiple of 8, at most 256"),
    ],
)
def test_a_baseline_says_what_it_cannot_compute(baselines, name, scenario, reason):
    assert baselines[name].cannot(scenario) == reason


def test_fa3_passes_the_gate_on_every_cell_of_core26(baselines):
    assert [
        complaint
        for cell in load_suite("core26").scenarios
        for distribution in JudgeSettings().judged_whole(cell.seqlen_k)
        for rng_seed in range(SEEDS)
        for complaint in complaints(baselines["fa3"], cell, distribution, rng_seed)
    ] == []


def test_a_baseline_that_is_not_installed_says_what_to_install(machine):
    if "flash-attn-4" in machine.packages:
        pytest.skip("FlashAttention-4 is installed")
    with pytest.raises(BaselineUnavailableError, match=r"baseline fa4: .*pip install --pre flash-attn-4"):
        build_baseline("fa4")


def test_an_unknown_baseline_names_those_that_there_are():
    expected = "no baseline is called 'fa5'; there are: best, fa3, fa4, cudnn, sdpa"
    with pytest.raises(BaselineUnavailableError, match=expected):
        build_baseline("fa5")


def test_a_scenario_that_the_baseline_cannot_compute_is_named_before_anything_runs(worker):
    bad = shape(seqlen_q=33, seqlen_k=131)
    with pytest.raises(BaselineUnavailableError, match="sdpa cannot compute 1 of the 2 scenarios of mixed") as caught:
        worker.baseline(Suite(name="mixed", scenarios=(shape(), bad)))
    assert bad.name in str(caught.value)
    assert shape().name not in str(caught.value)
    assert worker.baseline(Suite(name="fine", scenarios=(shape(),))).name == "sdpa"


def test_core26_is_within_fa3_and_beyond_sdpa(baselines):
    suite = load_suite("core26")
    check_baseline(baselines["fa3"], suite)
    with pytest.raises(BaselineUnavailableError, match="cannot compute 2 of the 26"):
        check_baseline(baselines["sdpa"], suite)
