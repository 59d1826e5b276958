"""What real cubins hold, and which of their variables a kernel only reads."""

import re
import struct

import pytest

from fitness.cubin import Cubin, read_cubin
from fitness.nvrtc import options_for
from fitness.ptx import addresses_constants, only_read

KERNEL = 'extern "C" __global__ void k(int* o, int i) {{ {} }}'


@pytest.fixture(scope="module")
def build():
    """Compiles a source in this process to its cubin and PTX."""
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc

    def build(source, arch="sm_90a"):
        program = nvrtc.createProgram(source, "candidate.cu", [], [])
        nvrtc.compileProgram(program, [*options_for(arch)])
        cubin, ptx = nvrtc.getCUBIN(program), nvrtc.getPTX(program).decode()
        nvrtc.destroyProgram(program)
        return cubin, ptx

    return build


def test_kernels_are_listed_by_their_names_and_functions_are_not(build):
    source = (
        "__noinline__ __device__ int f(int* o) { return atomicAdd(o, 1); }\n"
        + KERNEL.format("o[0] = f(o) + f(o + i);")
        + "\n__global__ void mangled(int* o) { o[0] = 1; }"
    )
    assert sorted(read_cubin(build(source)[0]).kernels) == ["_Z7mangledPi", "k"]


def test_a_plain_kernel_keeps_and_imports_nothing(build):
    source = KERNEL.format("__shared__ int s[64]; s[threadIdx.x] = i; __syncthreads(); o[0] = s[i];")
    assert read_cubin(build(source)[0]) == Cubin(kernels=("k",), writable=(), static_bytes=0, imported=())


@pytest.mark.parametrize(
    ("declaration", "body", "written"),
    [
        ("__device__ int T;", "o[0] = T++;", {"T"}),
        ("int T = 0;", "o[0] = T++;", {"T"}),
        ("", "static int T; o[0] = T++;", {"_ZZ1kE1T"}),
        ("constexpr int T = 3;", "o[0] = i; *(volatile int*)&T = i;", {"T"}),
        ("constexpr int T[4] = {1, 2, 3, 4};", "o[0] = T[i & 3];", {"T"}),  # its address is taken: it may be written
        ("constexpr int A = 1; constexpr const int* P[2] = {&A, &A};", "o[0] = *P[i];", {"A", "P"}),
        (
            "",
            'asm volatile("{.global .u32 hidden; st.global.u32 [hidden], %0;}" :: "r"(i) : "memory");',
            {"hidden"},
        ),
        (
            "",
            'asm volatile("{.global .u32 one, two; ld.global.u32 %0, [one];}" : "=r"(o[0]) :: "memory");',
            {"one", "two"},
        ),
        ("__device__ unsigned char T[1ull << 32];", "T[i]++;", {"T"}),  # for ptxas it has no bytes
        ("constexpr int T = 3;", "o[0] = i * T;", set()),
        ("constexpr int T = 3;", "o[0] = *(volatile int*)&T;", set()),
        ("__constant__ int T[4] = {1, 2, 3, 4};", "o[0] = T[i & 3];", set()),
        ("constexpr int div = 3, ld = 4, st = 5;", "o[0] = i / div + ld; o[1] = o[i] / i + st;", set()),
    ],
)
def test_what_could_be_written_is_told_from_what_is_only_read(build, declaration, body, written):
    cubin, ptx = build(f"{declaration}\n{KERNEL.format(body)}")
    found = [name for name in read_cubin(cubin).writable if name not in only_read(ptx)]
    assert {re.sub(r"\$__(\w+)__\d+\$\d+", r"\1", name) for name in found} == written  # ptxas renames what asm declares


ADD = "atom.global.add.u32 %0, [{}], 1;"
INJECTED = '__device__ __noinline__ void inject() {{ asm volatile("ret; }} {} .func idle() {{"); }}'


def renamed(build, name):
    """What ptxas calls a variable that the assembly of the test below declares inside a function."""
    source = f"{INJECTED.format(f'.global .u32 {name};')}\n{SCOPED}"
    (found,) = (each for each in read_cubin(build(source)[0]).writable if each != name)
    return found


SCOPED = KERNEL.format(f'inject(); asm volatile("{{.global .u32 calls; {ADD.format("calls")}}}" : "=r"(o[0]));')


@pytest.mark.parametrize(
    ("declaration", "body"),
    [
        # ptxas lets a string run over lines, so that what stands behind it begins no comment.
        (
            "__device__ unsigned calls;",
            rf'asm volatile(".pragma \"a\n /* \"; {ADD.format("calls")} // */" : "=r"(o[0]));',
        ),
        (
            INJECTED.format(".global .u32 %calls;"),
            f'inject(); asm volatile("{ADD.format("%%calls")}" : "=r"(o[0]));',
        ),
    ],
)
def test_no_variable_is_hidden_by_the_way_that_assembly_spells_it(build, declaration, body):
    cubin, ptx = build(f"{declaration}\n{KERNEL.format(body)}")
    assert len(read_cubin(cubin).writable) == 1
    assert only_read(ptx) == frozenset()


def test_a_variable_inside_a_function_is_not_vouched_for_by_one_of_the_name_that_it_gets(build):
    name = renamed(build, "$__calls__10$1")
    cubin, ptx = build(f"{INJECTED.format(f'.global .u32 {name};')}\n{SCOPED}")
    assert name in read_cubin(cubin).writable
    assert only_read(ptx) == frozenset()


@pytest.mark.parametrize(
    ("declaration", "body", "written"),
    [
        ("", "__shared__ int s[64]; s[threadIdx.x] = i; __syncthreads(); o[0] = s[i];", ()),
        ("constexpr int T = 3;", "o[0] = i * T;", ("T",)),  # only read, which its PTX tells
        ("__device__ int T;", "o[0] = T++;", ("T",)),
        ("__device__ int T = 1, U;", "o[0] = T++ + U++;", ("T", "U")),
    ],
)
def test_a_cubin_for_blackwell_holds_its_sections_twice_and_a_variable_once(build, declaration, body, written):
    cubin, _ = build(f"{declaration}\n{KERNEL.format(body)}", "sm_100a")
    size = 4 * len(written)
    assert read_cubin(cubin) == Cubin(kernels=("k",), writable=written, static_bytes=size, imported=())


def test_the_heap_of_the_device_is_an_import(build):
    source = KERNEL.format("int* p = (int*)malloc(8); o[0] = p[1]; p[1] = i; free(p);")
    assert sorted(read_cubin(build(source)[0]).imported) == ["free", "malloc"]


@pytest.mark.parametrize(
    ("body", "addressed"),
    [
        ("o[0] = T;", False),
        ('unsigned long long a; asm volatile("cvta.const.u64 %0, T;" : "=l"(a)); *(volatile int*)a = i;', True),
        (r'unsigned long long a; asm volatile("cvta .const\n.u64 %0, T;" : "=l"(a)); *(volatile int*)a = i;', True),
        ('long long a; asm volatile(".loc 0 1 1cvta.const.u64 %0, T;" : "=l"(a)); *(volatile int*)a = i;', True),
        ("((int*)TABLE[i & 1])[0] = i; o[0] = T;", True),
        ('unsigned long long a = (unsigned long long)&T; asm volatile("" : "+l"(a)); *(volatile int*)a = i;', True),
    ],
)
def test_an_address_of_constant_memory_is_seen(build, body, addressed):
    table = "__constant__ const int* const TABLE[] = {&T, &U};" if "TABLE" in body else ""
    _, ptx = build(f"__constant__ int T = 3, U = 4;\n{table}\n{KERNEL.format(body)}")
    assert addresses_constants(ptx) is addressed


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"#!/bin/sh\n" * 20])
def test_what_is_not_a_cubin_is_refused(image):
    with pytest.raises(ValueError, match=r"ELF|cubin|section"):
        read_cubin(image)


def test_a_cubin_cut_short_is_refused(build):
    image, _ = build(KERNEL.format("o[0] = i;"))
    with pytest.raises(ValueError, match="cubin"):
        read_cubin(image[: len(image) // 4])


def test_a_cubin_of_more_sections_than_its_header_has_room_for_is_read(build):
    image = bytearray(build(KERNEL.format("o[0] = i;"))[0])
    (table,) = struct.unpack_from("<Q", image, 40)
    count, names = struct.unpack_from("<HH", image, 60)
    struct.pack_into("<HH", image, 60, 0, 0xFFFF)
    struct.pack_into("<Q", image, table + 32, count)
    struct.pack_into("<I", image, table + 40, names)
    assert read_cubin(bytes(image)).kernels == ("k",)
