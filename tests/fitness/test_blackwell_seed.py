"""The seed for Blackwell: its launches and descriptors in numbers, and what NVRTC says of its builds. Nothing runs."""

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from evo.suites import load_suite
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.fork_server import start_fork_server
from fitness.manifest import Layer, read_manifest, with_knobs
from fitness.nvrtc import Job, Setup, options_for, serve
from fitness.plan import LaunchPlan
from fitness.planner import plan_builds, plan_scenario, plan_suite
from fitness.probe import Gpu
from fitness.process import KillableProcess
from fitness.process_limits import ProcessLimits
from fitness.rules import check_rules
from fitness.scenario import ElementType, Scenario, Suite, edge_scenarios

KERNELS = Path(__file__).parents[2] / "kernels"
SOURCE = (KERNELS / "seed" / "blackwell.cu").read_text()
MANIFEST = read_manifest(SOURCE)
B200 = Gpu(index=0, name="NVIDIA B200", capability=(10, 0), sm_count=148, memory_gib=180.0)
AVO = load_suite("avo_24")
REGISTERS = 128  # 65536 for 512 threads; the source deals them out anew


def a_scenario(*, head_dim=128, seqlen_q=512, element=ElementType.BF16):
    return Scenario(
        batch=2, heads=8, kv_heads=2, seqlen_q=seqlen_q, seqlen_k=512, head_dim=head_dim, causal=True,
        element_type=element,
    )  # fmt: skip


def with_edges(scenarios):
    return Suite(name="cells", scenarios=tuple(scenarios), edges=edge_scenarios(tuple(scenarios)))


MHA = with_edges(each for each in load_suite("fa3_36").scenarios if each.head_dim in (64, 128))
ALL_BUILDS = with_edges(a_scenario(head_dim=hd, element=element) for hd in (64, 128) for element in ElementType)


@pytest.fixture(scope="module")
def compile_suite(tmp_path_factory):
    """A function from a source and a suite to the builds' reports, for a B200."""
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = NvrtcCompiler(
        arch=B200.arch, include_dir=KERNELS / "include", timeout_s=120.0, memory_bytes=4 << 30,
        cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=2,
    )  # fmt: skip

    def compiled(source, suite):
        plan = plan_suite(read_manifest(source), suite, B200.sm_count)
        compiled = compiler.compile(source, plan.builds)
        require_kernels(plan, compiled)
        return [each.report for each in compiled]

    yield compiled
    compiler.close()


@pytest.fixture(scope="module")
def ptx():
    """A function from a scenario to the PTX of its build."""
    pytest.importorskip("cupy")
    start_fork_server()
    header = (KERNELS / "include" / "attention.cuh").read_text()
    setup = Setup(contract_header=header, options=options_for(B200.arch))
    process = KillableProcess(partial(serve, setup), limits=ProcessLimits(memory_bytes=4 << 30))

    def of(scenario):
        (build,) = plan_builds(MANIFEST, Suite(name="one", scenarios=(scenario,)))
        product = process.request(Job(source=SOURCE, defines=build.flags, timeout_s=120.0), deadline_s=120.0)
        assert not product.failure
        return product.ptx

    yield of
    process.close()


def test_it_keeps_the_rules_and_every_knob_has_a_choice():
    check_rules(SOURCE, MANIFEST)
    assert MANIFEST.targets == ("sm_100a",)
    assert {knob.layer for knob in MANIFEST.knobs} == {
        Layer.SCHEDULE, Layer.MEMORY, Layer.INSTRUCTIONS, Layer.ALGORITHM,
    }  # fmt: skip
    assert all(len(knob.choices) >= 2 and knob.value in knob.choices for knob in MANIFEST.knobs)
    assert SOURCE.count("\n") < 700


def test_a_b200_runs_its_target_and_is_compiled_for_it():
    assert (B200.arch, set(MANIFEST.targets) <= B200.targets) == ("sm_100a", True)


def test_a_block_takes_256_queries_of_a_head_and_one_multiprocessor():
    plan = plan_scenario(MANIFEST, a_scenario(seqlen_q=513), B200.sm_count)
    shared_bytes = 1024 + 2 * 128 * 128 * 2 + 4 * 128 * 128 * 2  # alignment, two tiles of Q, four of K or V
    assert plan.launches == (
        LaunchPlan(kernel="attention", grid=(3, 8, 2), block=(512, 1, 1), shared_bytes=shared_bytes),
    )
    assert [tensor_map.box for tensor_map in plan.tensor_maps] == [(64, 1, 128, 1)] * 4
    assert {tensor_map.swizzle for tensor_map in plan.tensor_maps} == {128}


def test_it_supports_every_cell_of_avo_24_and_20_of_core26():
    assert len(plan_builds(MANIFEST, AVO)) == 1
    core = load_suite("core26")
    with pytest.raises(CandidateFault) as refused:
        plan_suite(MANIFEST, core, B200.sm_count)
    assert refused.value.status is Status.UNSUPPORTED
    within = [each for each in core.scenarios if each.head_dim in (64, 128)]
    assert len(plan_suite(MANIFEST, with_edges(within), B200.sm_count).scenarios) == 20


@pytest.mark.parametrize(("suite", "builds"), [(AVO, 1), (MHA, 2), (ALL_BUILDS, 4)])
def test_no_build_spills(compile_suite, suite, builds):
    reports = compile_suite(SOURCE, suite)
    assert len(reports) == builds
    for report in reports:
        (kernel,) = report.kernels
        assert (kernel.kernel, kernel.registers) == ("attention", REGISTERS)
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.stack_bytes) == (0, 0, 0)
        assert not report.advisories


@pytest.mark.parametrize("pick", [min, max])
def test_the_extremes_of_the_knobs_do_not_spill_either(compile_suite, pick):
    source = with_knobs(SOURCE, {knob.name: pick(knob.choices) for knob in MANIFEST.knobs})
    for report in compile_suite(source, ALL_BUILDS):
        (kernel,) = report.kernels
        assert (kernel.registers, kernel.spill_store_bytes) == (REGISTERS, 0)


def bits(value, first, last):
    return value >> first & (1 << last - first + 1) - 1


def constant(text, name):
    """The value of a constexpr, which stands in the PTX as an initialised variable."""
    (found,) = re.findall(rf"\.global \.align \d \.u(?:32|64) {name} = (\d+);", text)
    return int(found)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("element", "code"), [(ElementType.BF16, 1), (ElementType.FP16, 0)])
def test_the_instruction_descriptors_say_what_is_multiplied(ptx, head_dim, element, code):
    text = ptx(a_scenario(head_dim=head_dim, element=element))
    for name, n_major, columns in (("SCORES_INSTRUCTION", 0, 128), ("VALUES_INSTRUCTION", 1, head_dim)):
        word = constant(text, name)  # PTX ISA 9.2, 9.7.16.4.2, kind::f16
        assert bits(word, 0, 3) == 0  # no sparsity, no saturation
        assert bits(word, 4, 5) == 1  # D is f32
        assert (bits(word, 7, 9), bits(word, 10, 12)) == (code, code)
        assert bits(word, 13, 15) == 0  # nothing negated, A not transposed
        assert bits(word, 16, 16) == n_major
        assert bits(word, 17, 22) == columns // 8
        assert bits(word, 24, 28) == 128 // 16
        assert (bits(word, 6, 6), bits(word, 23, 23), bits(word, 29, 31)) == (0, 0, 0)
        assert re.search(rf"mov\.b32\s+%r\d+, {word};", text)  # and it is what the products take


@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_shared_memory_descriptors_say_where_rows_and_slabs_lie(ptx, head_dim):
    text = ptx(a_scenario(head_dim=head_dim))
    for name, leading_bytes in (("ALONG_K", 16), ("ALONG_N", 128 * 128)):
        word = constant(text, name)  # PTX ISA 9.2, 9.7.16.4.1
        assert bits(word, 0, 13) == 0  # the start address is added when it is known
        assert bits(word, 16, 29) == leading_bytes // 16
        assert bits(word, 32, 45) == 1024 // 16
        assert bits(word, 46, 48) == 1
        assert (bits(word, 49, 51), bits(word, 52, 52), bits(word, 53, 60)) == (0, 0, 0)
        assert bits(word, 61, 63) == 2  # swizzling of 128 bytes
        assert re.search(rf"or\.b64\s+%rd\d+, %rd\d+, {word};", text)


def test_ptxas_accepts_the_ptx_too(ptx, tmp_path):
    """NVRTC's cubin has been through the ptxas inside it; this asks the toolkit's, where there is a recent one."""
    found = shutil.which("ptxas")
    version = found and subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    text = ptx(a_scenario())
    wanted = re.search(r"^\.version (\d+)\.(\d+)", text, re.MULTILINE)
    release = re.search(r"release (\d+)\.(\d+)", version or "")
    if release is None or (int(release[1]) - 4, int(release[2])) < (int(wanted[1]), int(wanted[2])):
        pytest.skip(f"no ptxas for PTX {wanted[1]}.{wanted[2]}")
    (tmp_path / "blackwell.ptx").write_text(text)
    command = [found, "-arch=sm_100a", "-v", "blackwell.ptx", "-o", "blackwell.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr
    assert f"Used {REGISTERS} registers" in done.stderr
