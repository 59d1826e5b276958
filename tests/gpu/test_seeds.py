"""The shipped seeds and a Hopper kernel, through the whole judge on a real device."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from evo.suites import load_suite
from fitness.correctness import check_suite
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.manifest import read_manifest, with_knobs
from fitness.planner import plan_suite
from fitness.scenario import ElementType, Suite, edge_scenarios
from fitness.watch import Watch
from tests.gpu.sources import ROOT, kernel, replaced, rows, seed, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

SETTINGS = 12  # of mma's knobs, drawn at random
BOTH_TYPES = tuple(
    shape(batch=2, heads=4, kv_heads=2, seqlen_q=300, head_dim=head_dim, element_type=element_type)
    for head_dim in (64, 128, 256)
    for element_type in ElementType
)
# 2^31 elements and a bit, in k and in v.
LONG = shape(batch=65, heads=32, kv_heads=32, seqlen_q=1, seqlen_k=8192, head_dim=128, causal=False)


@pytest.fixture
def checked(gpu, compiler, backend):
    """A function that gives the complaints of the correctness stage, run in this process: nothing is timed."""

    def complaints(source, suite, *distributions):
        plan = plan_suite(read_manifest(source), suite, gpu.sm_count)
        binaries = {build.build: build.binary for build in compiler.compile(source, plan.builds)}
        settings = JudgeSettings(distributions=distributions or tuple(Distribution))
        watch = Watch(lambda step, deadline_s: None, settings)
        checks = list(check_suite(plan, binaries, backend, settings, random.Random(0), watch))
        assert {check.scenario for check in checks} == {scenario.name for scenario in suite.scenarios}
        return [f"{check.scenario}: {check.reason}" for check in checks if not check.passed]

    yield complaints
    torch.cuda.empty_cache()


@pytest.mark.parametrize("name", ["naive", "tiled", "mma"])
def test_a_seed_passes_in_both_element_types_and_on_the_edges(judge, name):
    evaluation = judge(seed(name), BOTH_TYPES, edges=edge_scenarios(BOTH_TYPES))
    assert (evaluation.status, evaluation.reason) == (Status.PASSED, "")
    checked = {check.scenario for check in evaluation.checks}
    assert checked == {scenario.name for scenario in (*BOTH_TYPES, *edge_scenarios(BOTH_TYPES))}
    assert set(evaluation.speedups) == {scenario.name for scenario in BOTH_TYPES}


def test_a_hopper_kernel_passes_on_its_twelve_cells(judge, fa3_worker):
    cells = [cell for cell in load_suite("core26").scenarios[:18] if cell.head_dim < 256]
    source = (ROOT / "tests" / "fitness" / "kernels" / "hopper" / "h1.cu").read_text()
    evaluation = judge(source, cells, edges=edge_scenarios(tuple(cells)), with_worker=fa3_worker)
    assert (evaluation.status, evaluation.reason) == (Status.PASSED, "")
    assert len(evaluation.timings) == 12
    assert evaluation.environment.baseline == "fa3"
    assert all(timing.clocks["sm_mhz"] > 300 and 10 < timing.clocks["celsius"] < 100 for timing in evaluation.timings)
    assert {timing.baseline_setting for timing in evaluation.timings} <= {"num_splits=1", "num_splits=0"}


def test_mma_is_right_on_the_edges_whatever_its_knobs(checked, compiler, gpu):
    rng = random.Random(0)
    suite = Suite(name="edges", scenarios=edge_scenarios(tuple(shape(head_dim=each) for each in (64, 128, 256))))
    sources = []
    while len(sources) < SETTINGS:
        knobs = {knob.name: rng.choice(knob.choices) for knob in read_manifest(seed("mma")).knobs}
        source = with_knobs(seed("mma"), knobs)
        try:
            plan = plan_suite(read_manifest(source), suite, gpu.sm_count)
        except CandidateFault:  # more shared memory than there is
            continue
        sources.append((source, plan.builds))
    with ThreadPoolExecutor() as threads:  # all of their builds at a time
        list(threads.map(lambda each: compiler.compile(*each), sources))
    assert [complaint for source, _ in sources for complaint in checked(source, suite)] == []


@pytest.mark.parametrize("name", ["rows", "tiled", "mma"])
def test_more_than_two_to_the_31_elements_are_computed_rightly(checked, name):
    source = rows() if name == "rows" else seed(name)
    assert checked(source, Suite(name="long", scenarios=(LONG,)), Distribution.NORMAL) == []


def test_an_index_of_32_bits_is_found_out(judge):
    narrow = replaced(kernel("rows"), "return start;", "return static_cast<int>(static_cast<unsigned>(start));")
    evaluation = judge(narrow, [LONG], distributions=(Distribution.NORMAL,))
    assert evaluation.status in (Status.INCORRECT, Status.RUNTIME_ERROR)
