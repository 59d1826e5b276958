"""The tools of a model that need a device: counters, machine code, and occupancy beside the driver's own."""

import math
import shutil

import pytest

from evo.tools.bench import Bench
from evo.tools.disassemble import Disassemble
from evo.tools.draft_judge import DraftJudge
from evo.tools.measure import Measure
from evo.tools.nsight import COUNTERS, find_ncu
from evo.tools.occupancy import LIMITS, Occupancy, blocks_by_limit
from evo.tools.profile import Profile
from evo.tools.profiled_run import Launched
from fitness.compiler import build_names
from fitness.evaluation import Environment
from fitness.evaluator import Compiled, Evaluator, Target
from fitness.judge_settings import JudgeSettings
from fitness.scenario import Suite
from tests.gpu.sources import rows, seed, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

SMALL, LARGE = shape(seqlen_q=256), shape(batch=4, heads=16, kv_heads=16, seqlen_q=2048)
WIDE = """/*evo
contract = 1
name = "as many threads as there can be"
targets = ["portable"]

[[launch]]
kernel = "attention_forward"
grid = ["1"]
block = ["1024"]
*/
#include "attention.cuh"
extern "C" __global__ void __launch_bounds__(1024) attention_forward(const __grid_constant__ AttentionParams params) {
    params.lse[threadIdx.x % params.seqlen_q] = 0.0f;
}
"""


@pytest.fixture(scope="module")
def evaluator(machine, gpu, compiler, worker):
    suite = Suite(name="tools", scenarios=(SMALL, LARGE))
    baseline = worker.baseline(suite)
    environment = Environment(
        backend="cuda", device=gpu.name, driver=machine.driver, compiler=compiler.version, baseline=baseline.name,
        baseline_version=baseline.version,
    )  # fmt: skip
    target = Target(
        names=frozenset({"portable", "sm_80", gpu.arch}), sm_count=gpu.sm_count, environment=environment,
        compiling_disturbs=False,
    )  # fmt: skip
    return Evaluator(
        suite=suite, target=target, compiler=compiler, worker=worker, may_run=lambda _: True,
        settings=JudgeSettings(warmups=1, repeats=3, least_repeats=3),
    )  # fmt: skip


@pytest.fixture
def drafts(evaluator):
    return DraftJudge(evaluator=evaluator, compiler=evaluator)


@pytest.fixture(scope="module")
def ncu():
    found = find_ncu()
    if found is None:
        pytest.skip("ncu is not on the PATH")
    return found


def built(drafts, source):
    compiled = drafts.compiled(source)
    assert isinstance(compiled, Compiled), compiled
    return compiled


def test_a_draft_is_measured_and_profiled_where_it_stands_worst(drafts, ncu):
    bench = Bench((Measure(drafts), Profile(drafts, ncu=ncu, device_index=0)), limit=8)
    measured, profiled = (
        bench.call(name, '{"draft": "parent"}', parent_source=seed("mma"), order=order).result.splitlines()
        for order, name in enumerate(("measure", "profile"))
    )
    assert measured[0].startswith("PASSED: the geometric mean of 2 speedups is ")
    worst = measured[1].removeprefix("worst: ").rpartition(", ")[0]
    assert profiled[0] == f"on {worst}, cold caches"
    assert "attention:" in profiled


def test_counters_of_one_launch_agree_with_what_is_known_of_it(drafts, ncu, gpu):
    compiled = built(drafts, seed("mma"))
    [plan] = [each for each in compiled.plan.scenarios if each.scenario == LARGE]
    [build] = [each for each in compiled.builds if each.build == plan.build]
    found = ncu.counters(Launched(plan=plan, binary=build.binary, device_index=0))
    assert [each.kernel for each in found] == [launch.kernel for launch in plan.launches]
    for counters, launch in zip(found, plan.launches, strict=True):
        values = {name: float(value) for name, value in counters.values.items()}
        [used] = [each for each in build.report.kernels if each.kernel == launch.kernel]
        assert all(map(math.isfinite, values.values()))
        assert values["launch__registers_per_thread"] == used.registers
        assert values["gpu__time_duration.sum"] > 0
        shares = [value for name, value in values.items() if ".pct" in name]
        assert all(0 <= share <= 101 for share in shares)
    longest = {name: float(value) for name, value in found[0].values.items()}
    inputs = 2 * LARGE.batch * LARGE.head_dim * (LARGE.seqlen_q * LARGE.heads + 2 * LARGE.seqlen_k * LARGE.kv_heads)
    assert longest["dram__bytes_read.sum"] > 0.5 * inputs  # read at least once, whatever the L2 still held
    blocks = blocks_of(plan.launches[0], build, gpu)
    waves = math.prod(plan.launches[0].grid) / (blocks * gpu.sm_count)
    assert longest["launch__waves_per_multiprocessor"] == pytest.approx(waves, rel=0.02)


def test_every_counter_is_there_on_hopper(hopper, drafts, ncu):
    compiled = built(drafts, rows())
    plan = compiled.plan.scenarios[0]
    [counters] = ncu.counters(Launched(plan=plan, binary=compiled.builds[0].binary, device_index=0))
    assert set(counters.values) == set(COUNTERS)


def test_a_draft_that_is_wrong_is_not_profiled(drafts, ncu):
    wrong = rows("at last", "*lse = 0.0f;")
    assert Profile(drafts, ncu=ncu, device_index=0).call(wrong, {}).startswith("not profiled, as it does not pass: INC")


def test_machine_code_is_shown_with_its_counts(drafts):
    program = shutil.which("cuobjdump")
    if program is None:
        pytest.skip("cuobjdump is not on the PATH")
    tool = Disassemble(drafts, program=program, on_gpu=True)
    head, counts, first, *_ = tool.call(seed("mma"), {"kernel": "attention"}).splitlines()
    assert head.startswith("attention, ")
    assert " HMMA " in counts
    assert first.startswith("0000 ")
    assert "EXIT" in tool.call(rows(), {})


def blocks_of(launch, build, gpu):
    """Blocks on a multiprocessor, as the tool works them out."""
    [used] = [each for each in build.report.kernels if each.kernel == launch.kernel]
    return min(
        blocks_by_limit(
            LIMITS[gpu.arch.rstrip("a")], threads=math.prod(launch.block), registers=used.registers,
            shared_bytes=used.shared_bytes + launch.shared_bytes,
        ).values()
    )  # fmt: skip


def drivers_blocks(binary, kernel, threads, shared_bytes):
    """Blocks on a multiprocessor, as the driver says."""
    import cupy

    function = cupy.RawModule(path=str(binary)).get_function(kernel)
    if shared_bytes:
        function.max_dynamic_shared_size_bytes = shared_bytes
    return cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, threads, shared_bytes)


@pytest.mark.parametrize("name", ["naive", "tiled", "mma"])
def test_occupancy_of_the_seeds_is_the_drivers(backend, drafts, gpu, name):
    compiled = built(drafts, seed(name))
    for plan in compiled.plan.scenarios:
        [build] = [each for each in compiled.builds if each.build == plan.build]
        for launch in plan.launches:
            told = drivers_blocks(build.binary, launch.kernel, math.prod(launch.block), launch.shared_bytes)
            assert blocks_of(launch, build, gpu) == told, (build_names([build.build]), launch)


@pytest.mark.parametrize("shared_bytes", [0, 1, 1024, 8191, 16384, 49152, 100000, 115712, 115713, 232448])
@pytest.mark.parametrize("threads", [32, 33, 64, 96, 160, 256, 384, 1024])
def test_occupancy_is_the_drivers_at_every_limit(hopper, backend, drafts, threads, shared_bytes):
    [build] = built(drafts, WIDE).builds
    [used] = build.report.kernels
    found = blocks_by_limit(
        LIMITS["sm_90"], threads=threads, registers=used.registers, shared_bytes=used.shared_bytes + shared_bytes
    )
    assert min(found.values()) == drivers_blocks(build.binary, "attention_forward", threads, shared_bytes)


def test_the_tool_says_what_limits_the_tensor_core_seed(drafts, gpu):
    *lines, source = Occupancy(drafts, gpu).call(seed("mma"), {}).splitlines()
    assert all(", limited by " in line for line in lines)
    assert source.startswith(gpu.arch)
