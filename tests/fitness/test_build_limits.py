"""What one build may take of a device and of the records, as real sources ask for it."""

from pathlib import Path

import pytest

from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.fork_server import start_fork_server
from fitness.plan import Build
from fitness.scenario import ElementType

INCLUDE_DIR = Path(__file__).parents[2] / "kernels" / "include"
KERNEL = 'extern "C" __global__ void k(int* o, int i) {{ {} }}\n'
ONE = (Build(defines=(), element_type=ElementType.BF16),)
DEPRECATED = '[[deprecated("{}")]] __device__ int f() {{ return 1; }}\n'
MANY = (
    "template <int N> __global__ void t(int* p) { *p = N; }\n"
    "template <int N> struct Each {\n"
    "    static __device__ void take(void** p) { *p = (void*)&t<N>; Each<N - 1>::take(p); }\n"
    "};\n"
    "template <> struct Each<0> { static __device__ void take(void**) {} };\n"
)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=INCLUDE_DIR, cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=1,
        timeout_s=60.0, memory_bytes=4 << 30,
    )  # fmt: skip
    yield compiler
    compiler.close()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            MANY + KERNEL.format("Each<70>::take((void**)o);"),
            "the source has 71 kernels; at most 64 are allowed",
        ),
        (
            f"struct {'A' * 2000} {{}};\ntemplate <class T> __global__ void t(int* p) {{ *p = sizeof(T); }}\n"
            + KERNEL.format(f"*(void**)o = (void*)&t<{'A' * 2000}>;"),
            "a kernel's name has 2013 characters; at most 1000 are allowed",
        ),
        (
            'extern "C" __device__ unsigned char hog[3ull << 30];\n'
            + KERNEL.format(r'asm volatile("ld.global.u8 %0, [hog+5];" : "=r"(o[0]));'),
            "the source's variables take 3221225472 bytes of device memory; at most 67108864 are allowed; "
            "use a [[workspace]]",
        ),
        (
            KERNEL.format("volatile char tile[400000]; tile[i] = 1; o[0] = tile[i / 2];"),
            "each thread of k takes 400000 bytes of local memory, for arrays that no registers hold; "
            "at most 16384 are allowed",
        ),
    ],
)
def test_a_build_that_takes_too_much_is_refused(compiler, source, reason):
    with pytest.raises(CandidateFault) as raised:
        compiler.compile(source, ONE)
    assert (raised.value.status, raised.value.reason) == (Status.INVALID, reason)


def test_bytes_that_are_no_text_in_a_warning_are_no_fault_of_the_environment(compiler):
    (built,) = compiler.compile(DEPRECATED.format(r"\xff\xfe") + KERNEL.format("o[0] = f();"), ONE)
    assert [kernel.kernel for kernel in built.report.kernels] == ["k"]


def test_warnings_without_end_are_refused_by_their_length(compiler):
    source = DEPRECATED.format("x" * 20_000) + KERNEL.format("int n = i;\n" + "n += f();" * 100 + "o[0] = n;")
    with pytest.raises(CandidateFault) as raised:
        compiler.compile(source, ONE)
    assert raised.value.status is Status.COMPILE_ERROR
    assert raised.value.reason.startswith("candidate.cu(1): error: what the compiler warns of has ")
    assert raised.value.reason.endswith(" characters; at most 1048576 are allowed")
