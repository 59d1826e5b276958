"""Sources compiled by the real NVRTC in processes of their own: good ones, bad ones, and those that never end."""

import os
import signal
import struct
from functools import partial
from pathlib import Path

import pytest

from fitness import nvrtc
from fitness.build_cache import BuildCache
from fitness.compiler import CompiledBuild, NvrtcCompiler, ask_again_if_killed, build_names, require_kernels
from fitness.evaluation import BuildReport, KernelResources, Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.plan import Build, LaunchPlan, ScenarioPlan, SuitePlan
from fitness.process import Done, KillableProcess, ProcessDied
from fitness.process_limits import ProcessLimits
from fitness.scenario import ElementType, Scenario

INCLUDE_DIR = Path(__file__).parents[2] / "kernels" / "include"
KERNEL = 'extern "C" __global__ void k(int* o, int i) {{ {} }}\n'
BOMB = (
    "template <int N, int M> struct A { static constexpr int v = A<N - 1, M * 2>::v + A<N - 1, M * 2 + 1>::v; };\n"
    "template <int M> struct A<0, M> { static constexpr int v = 1; };\n" + KERNEL.format("o[0] = A<26, 0>::v;")
)
UNROLL_BOMB = KERNEL.format(
    "\n#pragma unroll\nfor (int a = 0; a < 500; a++) {"
    "\n#pragma unroll\nfor (int b = 0; b < 500; b++) o[a * i + b] += o[b * i + a] * a; }\n"
)


def a_build(element_type=ElementType.BF16, **defines):
    return Build(defines=tuple(defines.items()), element_type=element_type)


ONE = (a_build(),)


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def nvrtc_compiler(folder, timeout_s=60.0, memory_bytes=4 << 30):
    return NvrtcCompiler(
        arch="sm_90a", include_dir=INCLUDE_DIR, cache=BuildCache(folder), processes=2, timeout_s=timeout_s,
        memory_bytes=memory_bytes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compiler(cache_folder):
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = nvrtc_compiler(cache_folder)
    yield compiler
    compiler.close()


def refusal(compiler, source, builds=ONE):
    with pytest.raises(CandidateFault) as fault:
        compiler.compile(source, builds)
    return fault.value


def test_the_version_is_nvrtcs_own_and_the_flags_ask_for_no_fast_math(compiler):
    name, version = compiler.version.split()
    assert name == "NVRTC"
    assert len(version.split(".")) == 3
    assert compiler.flags == ("-std=c++17", "-default-device", "-arch=sm_90a", "--ptxas-options=-v")


def test_each_build_has_its_binary_and_report(compiler):
    source = '#include "attention.cuh"\nextern "C" __global__ void k(const __grid_constant__ AttentionParams p) {' \
        " __shared__ float s[WIDTH]; s[threadIdx.x] = to_float(p.q[threadIdx.x]); __syncthreads();" \
        " p.o[threadIdx.x] = to_element(s[WIDTH - 1 - threadIdx.x]); }"  # fmt: skip
    builds = (a_build(WIDTH=32), a_build(WIDTH=64), a_build(ElementType.FP16, WIDTH=64))
    compiled = compiler.compile(source, builds)
    assert [each.build for each in compiled] == list(builds)
    assert [each.report.name for each in compiled] == [
        "element=bf16 WIDTH=32", "element=bf16 WIDTH=64", "element=fp16 WIDTH=64",
    ]  # fmt: skip
    assert [each.report.kernels[0].shared_bytes for each in compiled] == [128, 256, 256]
    assert all(0 < each.report.kernels[0].registers < 32 for each in compiled)
    assert all(each.binary.read_bytes()[:4] == b"\x7fELF" for each in compiled)
    assert len({each.binary for each in compiled}) == 3
    assert compiler.compile(source, builds) == compiled


def test_the_same_source_compiled_again_without_the_cache_has_the_same_report(compiler, tmp_path):
    source = KERNEL.format("o[0] = i * 7;")
    (first,) = compiler.compile(source, ONE)
    for path in first.binary.parent.iterdir():
        path.unlink()
    (second,) = compiler.compile(source, ONE)
    assert second.report == first.report
    assert second.report.kernels[0].registers > 0


def test_a_cubin_is_whole_so_that_other_tools_can_read_it(compiler):
    (compiled,) = compiler.compile(KERNEL.format("o[0] = i;"), ONE)
    image = compiled.binary.read_bytes()
    starts = struct.unpack_from("<QQ", image, 32)  # of the program headers and of the section headers
    sizes = struct.unpack_from("<HHHH", image, 54)  # one of each, and how many
    ends = [starts[0] + sizes[0] * sizes[1], starts[1] + sizes[2] * sizes[3]]
    assert len(image) == max(ends)


def test_spills_are_reported(compiler):
    source = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) k(float* o) { float a[64];\n'
        "for (int i = 0; i < 64; i++) a[i] = o[i * threadIdx.x];\n"
        "for (int j = 0; j < 100; j++) {\n#pragma unroll\n"
        "for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 7) % 64] + o[j]; __syncthreads(); }\n"
        "for (int i = 0; i < 64; i++) o[i + threadIdx.x * 64] = a[i]; }\n"
    )
    ((kernel,),) = (each.report.kernels for each in compiler.compile(source, ONE))
    assert kernel.registers == 32
    assert kernel.spill_store_bytes > 100
    assert kernel.stack_bytes > 100


def test_an_error_comes_with_the_line_and_the_build(compiler):
    source = KERNEL.format("\n#if WIDTH == 64\no[0] = wdith;\n#endif\n")
    fault = refusal(compiler, source, (a_build(WIDTH=32), a_build(WIDTH=64)))
    assert fault.status is Status.COMPILE_ERROR
    assert fault.reason == (
        'in the build WIDTH=64: candidate.cu(3): error: identifier "wdith" is undefined\n'
        "  o[0] = wdith;\n"
        "         ^"
    )


@pytest.mark.parametrize("name", ["x", "dim3", "T", "float2", "threadIdx", "q"])
def test_a_knob_by_a_name_of_the_headers_is_told_by_its_name(compiler, name):
    source = '#include "attention.cuh"\n' + KERNEL.format("o[0] = i;")
    fault = refusal(compiler, source, (a_build(WIDTH=32, **{name: 4}),))
    why = f"the headers use that name themselves, and -D{name} changes it there; choose another name"
    assert (fault.status, fault.reason) == (
        Status.COMPILE_ERROR, f"no knob and no define can be called {name}: {why}",
    )  # fmt: skip


def test_an_error_of_the_candidates_own_is_not_put_down_to_a_knob(compiler):
    fault = refusal(compiler, KERNEL.format("o[0] = WIDTH + nothing;"), (a_build(WIDTH=32),))
    assert fault.reason.startswith('candidate.cu(1): error: identifier "nothing" is undefined')


def test_a_fault_is_kept_too(compiler, cache_folder):
    source = KERNEL.format("never_heard_of();")
    reason = refusal(compiler, source).reason
    records = sorted(cache_folder.glob("*.json"))
    assert refusal(compiler, source).reason == reason
    assert sorted(cache_folder.glob("*.json")) == records


@pytest.mark.parametrize("source", [BOMB, UNROLL_BOMB], ids=["templates", "unroll"])
def test_a_compile_that_never_ends_is_killed_and_the_next_one_answered(compiler, cache_folder, source):
    impatient = nvrtc_compiler(cache_folder, timeout_s=0.5)
    fault = refusal(impatient, source)
    assert fault.status is Status.COMPILE_ERROR
    assert fault.reason == "compiling took longer than 0.5 s"
    (compiled,) = compiler.compile(KERNEL.format("o[0] = i;"), ONE)
    assert compiled.report.kernels[0].kernel == "k"
    impatient.close()


def test_a_source_that_takes_the_compilers_memory_is_refused_and_the_next_one_answered(compiler, tmp_path):
    small = nvrtc_compiler(tmp_path, memory_bytes=512 << 20)
    fault = refusal(small, BOMB)
    assert fault.status is Status.COMPILE_ERROR
    assert "out of memory" in fault.reason.splitlines()[0]
    [built] = small.compile(KERNEL.format("o[0] = i;"), ONE)
    assert [each.kernel for each in built.report.kernels] == ["k"]
    small.close()


def test_endless_recursion_is_a_readable_error(compiler):
    endless = "template <int N> struct A { static constexpr int v = A<N + 1>::v + 1; };\n"
    fault = refusal(compiler, endless + KERNEL.format("o[0] = A<0>::v;"))
    assert fault.status is Status.COMPILE_ERROR
    assert 'candidate.cu(1): error: excessive recursion at instantiation of class "A<200>"' in fault.reason
    assert len(fault.reason.splitlines()) <= 61


@pytest.mark.parametrize(
    "include",
    [
        '#include "{}"',
        "#inc\\\nlude <{}>",
        '%:include "{}"',
        "#define FILE \"{}\"\n#include FILE",
        '#/* */include "{}"',
        '#define TEXT(x) #x\nextern "C" __global__ void k() {{ static_assert(false, TEXT(\n#include "{}"\n)); }}',
    ],
)
def test_no_text_of_a_file_reaches_a_reason(compiler, tmp_path, include):
    secret = tmp_path / "notes.txt"
    secret.write_text("swordfish\n")
    fault = refusal(compiler, include.format(secret) + "\n" + KERNEL.format(""))
    assert fault.status is Status.COMPILE_ERROR
    assert "this cannot be included; only attention.cuh, cuda_bf16.h and cuda_fp16.h can" in fault.reason
    assert "swordfish" not in fault.reason
    assert "notes" not in fault.reason


def test_whether_a_file_exists_cannot_be_asked(compiler):
    source = '#if __has_include("/etc/passwd")\n#error there\n#endif\n' + KERNEL.format("o[0] = i;")
    assert compiler.compile(source, ONE)[0].report.kernels[0].kernel == "k"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("__device__ int calls;\n" + KERNEL.format("o[0] = calls++;"), "keeps state in device memory, or could: calls"),
        ("__constant__ int t = 3;\n" + KERNEL.format(
            'unsigned long long a = (unsigned long long)&t; asm volatile("" : "+l"(a)); *(volatile int*)a = i;'
        ), "takes the address of __constant__ memory"),
        (KERNEL.format("*(void**)o = malloc(8);"), "calls malloc; on the device there is no heap"),
        (KERNEL.format('printf("%d", i);'), "calls vprintf"),
    ],
)  # fmt: skip
def test_what_could_keep_state_is_invalid(compiler, source, told):
    fault = refusal(compiler, source)
    assert fault.status is Status.INVALID
    assert told in fault.reason


def test_constants_at_file_scope_are_welcome(compiler):
    source = "constexpr int TILE = 128, ROWS = TILE / 2;\n" + KERNEL.format("o[0] = i * ROWS;")
    assert len(compiler.compile(source, ONE)) == 1


@pytest.mark.parametrize("source", ["", "int main() { return 0; }", "__device__ void f() {}"])
def test_a_source_without_a_kernel_is_refused(compiler, source):
    fault = refusal(compiler, source)
    assert (fault.status, fault.reason) == (Status.COMPILE_ERROR, "the source has no __global__ function")


@pytest.mark.parametrize("source", ["\ud800", "int a;\0" + KERNEL.format("")])
def test_a_source_that_is_not_text_is_invalid(compiler, source):
    assert refusal(compiler, source).status is Status.INVALID


def test_too_much_shared_memory_is_ptxas_to_tell(compiler):
    fault = refusal(compiler, KERNEL.format("__shared__ int s[100000]; s[i] = i; __syncthreads(); o[0] = s[o[1]];"))
    assert fault.reason == "ptxas: Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)"


def test_a_cache_that_cannot_be_written_is_the_environments_fault(compiler, tmp_path):
    (tmp_path / "file").write_text("")
    blocked = nvrtc_compiler(tmp_path / "file")
    with pytest.raises(EnvironmentFault, match="compile cache"):
        blocked.compile(KERNEL.format("o[0] = i;"), ONE)
    blocked.close()


def test_a_missing_header_is_the_environments_fault(tmp_path):
    with pytest.raises(EnvironmentFault, match="contract's header cannot be read"):
        NvrtcCompiler(
            arch="sm_90a", include_dir=tmp_path, cache=BuildCache(tmp_path), processes=1, timeout_s=1.0, memory_bytes=1
        )


def test_an_unknown_architecture_is_the_environments_fault(compiler, tmp_path):
    unknown = NvrtcCompiler(
        arch="sm_11z", include_dir=INCLUDE_DIR, cache=BuildCache(tmp_path), processes=1, timeout_s=9.0,
        memory_bytes=4 << 30,
    )  # fmt: skip
    with pytest.raises(EnvironmentFault, match="NVRTC cannot be used"):
        unknown.compile(KERNEL.format(""), ONE)
    unknown.close()


def test_no_builds_compile_to_nothing(compiler):
    assert compiler.compile(KERNEL.format(""), ()) == ()


def test_builds_are_named_by_what_differs():
    assert build_names([a_build(HD=64, CAUSAL=0), a_build(HD=64, CAUSAL=1)]) == ("CAUSAL=0", "CAUSAL=1")
    assert build_names([a_build(HD=64)]) == ("element=bf16",)
    assert build_names([a_build(), a_build(ElementType.FP16)]) == ("element=bf16", "element=fp16")


@pytest.mark.parametrize(("there", "hint"), [("_Z7forwardPi", ' (a mangled name lacks its extern "C")'), ("other", "")])
def test_a_launch_of_a_kernel_that_is_not_there_names_what_is(there, hint):
    scenario = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=1, seqlen_k=1, head_dim=64, causal=False)
    launch = LaunchPlan(kernel="forward", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0)
    plan = ScenarioPlan(scenario=scenario, build=ONE[0], tensor_maps=(), workspaces=(), launches=(launch,))
    kernel = KernelResources(
        kernel=there, registers=8, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, shared_bytes=0
    )
    report = BuildReport(name="", kernels=(kernel,), advisories=())
    compiled = (CompiledBuild(build=ONE[0], binary=Path("x.cubin"), report=report),)
    with pytest.raises(CandidateFault) as fault:
        require_kernels(SuitePlan(scenarios=(plan,), edges=()), compiled)
    assert fault.value.status is Status.COMPILE_ERROR
    assert fault.value.reason == f"the manifest launches forward; the source has {there}{hint}"


def test_a_comment_that_poses_as_the_assemblers_report_is_no_fault_of_the_environment(compiler):
    posing = "\nint x = 0; // ptxas info    : Compiling entry function 'forged' for 'sm_90a'\n" \
        "int y = 0; // ptxas info    : Used 4 registers\no[0] = i;\n"  # fmt: skip
    (built,) = compiler.compile(KERNEL.format(posing), ONE)
    assert [kernel.kernel for kernel in built.report.kernels] == ["k"]


@pytest.mark.parametrize("name", ["forged", "k"])
def test_nor_is_a_warning_of_several_lines_which_tells_nothing_of_a_kernel(compiler, name):
    lines = f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'\\nptxas info    : Used 4000 registers"
    posing = f'[[deprecated("old\\n{lines}\\n")]] __device__ int f() {{ return 1; }}\n'
    (built,) = compiler.compile(posing + KERNEL.format("o[0] = f();"), ONE)
    (kernel,) = built.report.kernels
    assert kernel.kernel == "k"
    assert 0 < kernel.registers <= 255


def test_a_binary_of_tables_is_refused_by_its_size(compiler):
    fault = refusal(compiler, "__device__ const char table[68000000] = {1};\n" + KERNEL.format("o[0] = table[i];"))
    assert fault.status is Status.COMPILE_ERROR
    assert "error: its code and tables have " in fault.reason
    assert fault.reason.endswith(" MiB; at most 64 are allowed")


def killed(times, notes, connection):
    """Answer every request, but for the first ones, on which something kills the process."""
    while True:
        request = connection.recv()
        with notes.open("a") as file:
            file.write(f"{request}\n")
        if notes.read_text().count("\n") <= times:
            os.kill(os.getpid(), signal.SIGKILL)
        connection.send(Done("compiled"))


def test_a_compiler_that_is_killed_once_is_asked_again(tmp_path):
    start_fork_server()
    notes = tmp_path / "notes"
    with KillableProcess(partial(killed, 1, notes), limits=ProcessLimits()) as process:
        assert ask_again_if_killed(process, "a job") == "compiled"
    assert notes.read_text() == "a job\n" * 2


def test_a_compiler_that_is_killed_again_has_died(tmp_path):
    start_fork_server()
    notes = tmp_path / "notes"
    with (
        KillableProcess(partial(killed, 2, notes), limits=ProcessLimits()) as process,
        pytest.raises(ProcessDied, match="SIGKILL"),
    ):
        ask_again_if_killed(process, "a job")
    assert notes.read_text() == "a job\n" * 2


def test_of_a_message_without_end_the_beginning_is_kept():
    pytest.importorskip("cupy")
    start_fork_server()
    nested = "template <class A, class B> struct P {};\n" \
        "template <class A, int N> struct T { typedef typename T<P<A, A>, N + 1>::type type; };\n" \
        "template <class A> struct T<A, 18> { typedef A type; };\n"  # fmt: skip
    header = (INCLUDE_DIR / "attention.cuh").read_text()
    setup = nvrtc.Setup(contract_header=header, options=nvrtc.options_for("sm_90a"))
    job = nvrtc.Job(source=nested + KERNEL.format("T<int, 0>::type x = 5;"), defines=(), timeout_s=60.0)
    with KillableProcess(partial(nvrtc.serve, setup), limits=ProcessLimits()) as process:
        product = process.request(job, deadline_s=60.0)
    assert isinstance(product, nvrtc.Product)
    assert len(product.log) == 1 << 20
