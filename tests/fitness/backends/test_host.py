"""The host backend: guarded tensors, launches in both orders, and kernels that are wrong on purpose."""

import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fitness.backends.host import HostBackend, HostBound
from fitness.backends.host_compiler import HostCompiler
from fitness.build_cache import BuildCache
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.inputs import Distribution, draw_inputs
from fitness.manifest import read_manifest
from fitness.plan import ScenarioPlan, TensorMapPlan
from fitness.planner import plan_suite
from fitness.reference import compute_reference
from fitness.rules import check_rules
from fitness.scenario import Scenario, Suite
from tests.fitness.planted import expected_on_host

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

INCLUDE = Path(__file__).parents[3] / "kernels" / "include"
WRONG = Path(__file__).parents[1] / "kernels" / "portable"
# One that shows every fault: causal, unequal lengths, grouped heads, rows that see no key, and no round number.
SHAPE = Scenario(batch=2, heads=4, kv_heads=2, seqlen_q=75, seqlen_k=71, head_dim=32, causal=True)
TINY = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=3, seqlen_k=5, head_dim=8, causal=False)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> HostCompiler:
    cache = BuildCache(tmp_path_factory.mktemp("builds"), suffix=".so")
    return HostCompiler(include_dir=INCLUDE, cache=cache, processes=2, timeout_s=60, memory_bytes=2 << 30)


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend(threads=1)


def plan_of(source: str, scenario: Scenario) -> ScenarioPlan:
    manifest = read_manifest(source)
    check_rules(source, manifest)
    return plan_suite(manifest, Suite(name="one", scenarios=(scenario,)), 1).scenarios[0]


def bind(source: str, scenario: Scenario, compiler: HostCompiler, backend: HostBackend) -> HostBound:
    plan = plan_of(source, scenario)
    return backend.bind(plan, compiler.compile(source, [plan.build])[0].binary)


def candidate(body: str, *entries: str) -> str:
    return f"""/*evo
contract = 1
name = "few lines"
targets = ["portable"]
{"".join(entries)}
[[launch]]
kernel = "attention_forward"
grid = ["1"]
block = ["2"]
*/
#include "attention.cuh"
extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {{
    {body}
}}
"""


def wrong_kernels(*statuses: Status) -> list[object]:
    paths = sorted(path for path in WRONG.glob("*.cu") if expected_on_host(path).status in statuses)
    return [pytest.param(path, id=path.stem) for path in paths]


def test_every_kind_of_fault_has_its_kernel():
    statuses = {expected_on_host(path).status for path in WRONG.glob("*.cu")}

    assert statuses == set(Status) - {Status.PASSED, Status.STOPPED_EARLY}


@needs_gxx
@pytest.mark.parametrize("path", wrong_kernels(Status.INCORRECT))
def test_an_incorrect_kernel_is_found_out_in_every_order(path, compiler, backend):
    bound = bind(path.read_text(encoding="utf-8"), SHAPE, compiler, backend)
    inputs = bound.tensors.q, bound.tensors.k, bound.tensors.v
    draw_inputs(Distribution.NORMAL, 1, *inputs)
    drawn = [tensor.clone() for tensor in inputs]
    reference = compute_reference(*drawn, SHAPE)

    for _ in range(2):
        bound.poison()
        bound.replay.run()
        right = (
            torch.allclose(bound.tensors.o.float(), reference.o, atol=0.01, rtol=0.02)
            and torch.allclose(bound.tensors.lse, reference.lse, atol=1e-3)
            and all(torch.equal(after, before) for after, before in zip(inputs, drawn, strict=True))
        )
        assert not right
        assert bound.violations() == ""


@needs_gxx
@pytest.mark.parametrize("path", wrong_kernels(Status.INVALID, Status.UNSUPPORTED, Status.COMPILE_ERROR))
def test_what_can_be_refused_before_it_runs_is_refused(path, compiler, backend):
    with pytest.raises(CandidateFault) as raised:
        bind(path.read_text(encoding="utf-8"), SHAPE, compiler, backend)
    assert expected_on_host(path).complaint(raised.value.status, raised.value.reason) == ""


@needs_gxx
def test_diverging_barriers_are_a_runtime_error_that_names_the_lines(compiler, backend):
    source = (WRONG / "barrier_divergence.cu").read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(source.splitlines(), 1) if "__syncthreads" in line]

    with pytest.raises(CandidateFault) as raised:
        bind(source, SHAPE, compiler, backend).replay.run()
    assert raised.value.status is Status.RUNTIME_ERROR
    assert raised.value.reason == (
        f"attention_forward: barrier divergence: thread 0 waits at line {lines[0]} and thread 1 at line {lines[1]} "
        "(block 0, 0, 0)"
    )


RUN = """
import resource, sys
from pathlib import Path
from fitness.backends.host import HostBackend
from fitness.manifest import read_manifest
from fitness.planner import plan_suite
from fitness.scenario import Scenario, Suite
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
source, binary, shape = Path(sys.argv[1]).read_text(), Path(sys.argv[2]), Scenario.from_json(eval(sys.argv[3]))
plan = plan_suite(read_manifest(source), Suite(name="one", scenarios=(shape,)), 1).scenarios[0]
HostBackend(threads=1).bind(plan, binary).replay.run()
"""


@needs_gxx
def test_a_stray_access_is_a_fault_of_the_processor(compiler):
    paths = [WRONG / f"{name}.cu" for name in ("out_of_bounds_far", "out_of_bounds_by_one", "stack_overflow")]
    processes = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        binary = compiler.compile(source, [plan_of(source, SHAPE).build])[0].binary
        command = [sys.executable, "-c", RUN, str(path), str(binary), repr(SHAPE.to_json())]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE))

    for process in processes:
        _, words = process.communicate()
        assert process.returncode == -signal.SIGSEGV, words.decode()


@needs_gxx
def test_a_zeroed_workspace_is_cleared_before_every_call_and_another_is_nan_at_one_of_two(compiler, backend):
    source = candidate(
        """
        int* counted = static_cast<int*>(params.workspace[0]);
        const int* scratch = static_cast<const int*>(params.workspace[1]);
        const bool nan = (scratch[2] & 0x7f817f81) == 0x7f817f81, small = scratch[2] >= 0 && scratch[2] < 32;
        atomicAdd(counted + 1, 1);
        __syncthreads();
        const float held = nan ? 100.0f : small ? 200.0f : 0.0f;
        params.lse[threadIdx.x] = counted[1] + (params.workspace[2] == nullptr) + held;
        """,
        '[[workspace]]\nbytes = "8"\nzeroed = true\n',
        '[[workspace]]\nbytes = "12"\n',
        '[[workspace]]\nbytes = "4"\nwhen = "causal"\n',
    )
    bound = bind(source, TINY, compiler, backend)
    found = []
    for _ in range(6):
        bound.poison()
        bound.replay.run()
        found.append(bound.tensors.lse.flatten()[:2].tolist())
        assert bound.tensors.lse.flatten()[2].isnan()
    assert all(sorted(found[i : i + 2]) == [[103.0, 103.0], [203.0, 203.0]] for i in (0, 2, 4))
    assert bound.replay.time_ms() > 0


@needs_gxx
def test_runs_alternate_between_the_orders_and_timed_calls_go_forwards(compiler, backend):
    source = candidate("params.lse[0] = threadIdx.x;  // the last to write stays")
    bound = bind(source, TINY, compiler, backend)
    last = []
    for call in (bound.replay.run, bound.replay.run, bound.replay.time_ms, bound.replay.run, bound.replay.time_ms):
        call()
        last.append(bound.tensors.lse.flatten()[0].item())

    assert last == [1.0, 0.0, 1.0, 1.0, 1.0]


@needs_gxx
@pytest.mark.parametrize(
    ("body", "violation"),
    [
        ("params.lse[3] = 0.0f;", "it wrote past the end of lse"),
        ("params.o[-1] = to_element(0.0f);", "it wrote before the start of o"),
        ("static_cast<char*>(params.workspace[0])[5] = 0;", "it wrote past the end of workspace 0"),
        ("params.lse[2] = 0.0f; params.o[23] = to_element(0.0f);", ""),
    ],
)
def test_a_write_beside_a_tensor_is_told(compiler, backend, body, violation):
    bound = bind(candidate(body, '[[workspace]]\nbytes = "5"\n'), TINY, compiler, backend)
    bound.replay.run()

    assert bound.violations() == violation


@needs_gxx
def test_nothing_of_one_call_is_left_for_the_next(compiler, backend):
    """Not beside a tensor, and not in a local array; whoever left something beside a tensor is told for ever."""
    body = """if (threadIdx.x > 0) return;
    params.lse[0] = to_float(params.q[-1]);
    volatile int kept[300];
    params.lse[1] = kept[7] == 12345 || kept[200] == 12345;
    for (int i = 0; i < 300; ++i) kept[i] = 12345;
    const_cast<Element*>(params.q)[-1] = to_element(3.0f);"""
    bound = bind(candidate(body), TINY, compiler, backend)
    found = []
    for _ in range(3):
        bound.poison()
        bound.replay.run()
        found.append(bound.tensors.lse.flatten()[:2].tolist())

    assert all(math.isnan(beside) for beside, _ in found)
    assert [local for _, local in found] == [0.0, 0.0, 0.0]
    bound.poison()
    assert bound.violations() == "it wrote before the start of q"


@needs_gxx
def test_a_workspace_beyond_all_memory_is_a_lack_of_memory_and_no_verdict_yet(compiler, backend):
    with pytest.raises(MemoryError, match="1099511627776 bytes for workspace 0 are not to be had"):
        bind(candidate("", '[[workspace]]\nbytes = "1099511627776"\n'), TINY, compiler, backend)


@needs_gxx
def test_several_processor_threads_share_the_blocks(compiler):
    source = candidate("params.lse[blockIdx.x] = blockIdx.x;").replace('grid = ["1"]', 'grid = ["3"]')
    bound = bind(source, TINY, compiler, HostBackend(threads=2))
    bound.poison()
    bound.replay.run()

    assert bound.tensors.lse.flatten().tolist() == [0.0, 1.0, 2.0]
    torch.set_num_threads(1)


def test_what_is_no_shared_object_is_the_candidates_fault(tmp_path, backend):
    (tmp_path / "x.so").write_bytes(b"no")
    with pytest.raises(CandidateFault, match="the build cannot be loaded"):
        backend.bind(plan_of(candidate(""), TINY), tmp_path / "x.so")


@needs_gxx
def test_no_room_for_a_second_threads_copy_is_the_environments_fault(compiler):
    built = compiler.compile(candidate(""), [plan_of(candidate(""), TINY).build])[0].binary
    program = f"""
import resource
from pathlib import Path
from fitness.backends.host_library import HostLibrary
from fitness.faults import EnvironmentFault
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
try:
    HostLibrary(Path({str(built)!r}), threads=2)
except EnvironmentFault as fault:
    print(fault)
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no copy of a build fits into the folder for temporary files (TMPDIR): [Errno 27]")


def test_tensor_maps_are_unsupported(tmp_path, backend):
    plan = plan_of(candidate(""), TINY)
    fields = {name: getattr(plan, name) for name in ("scenario", "build", "workspaces", "launches")}
    maps = (TensorMapPlan(tensor="k", box=(8, 1, 1, 1), swizzle=0),)
    with pytest.raises(CandidateFault) as raised:
        backend.bind(ScenarioPlan(tensor_maps=maps, **fields), tmp_path)
    assert raised.value.status is Status.UNSUPPORTED


def test_a_captured_call_is_made_at_once_and_then_for_each_run_and_each_timing(backend):
    made = iter(range(10))
    replay = backend.capture(lambda: torch.tensor(next(made)))
    outputs = [replay.output.item()]
    replay.run()
    outputs.append(replay.output.item())

    assert replay.time_ms() > 0
    assert [*outputs, replay.output.item()] == [0, 1, 2]


def test_no_threads_are_refused():
    with pytest.raises(EnvironmentFault, match="0 threads; expected at least 1"):
        HostBackend(threads=0)
