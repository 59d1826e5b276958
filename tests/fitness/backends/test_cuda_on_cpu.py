"""The headers that stand for CUDA: what a kernel's threads see, in both orders that they can run in."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fitness.backends.host_compiler import HostCompiler
from fitness.backends.host_library import HostLibrary
from fitness.build_cache import BuildCache
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.parameters import pack_parameters
from fitness.plan import Build, LaunchPlan
from fitness.scenario import ElementType, Scenario

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

INCLUDE = Path(__file__).parents[3] / "kernels" / "include"
SHAPE = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=1, seqlen_k=1, head_dim=8, causal=False)

# Kernels read workspace[1] and write workspace[0].
KERNELS = r"""
#include "attention.cuh"
#define KERNEL(NAME) extern "C" __global__ void NAME(const __grid_constant__ AttentionParams params)
#define OUT(T) static_cast<T*>(params.workspace[0])
#define IN(T) static_cast<const T*>(params.workspace[1])

static_assert(sizeof(float4) == 16 && alignof(float4) == 16 && alignof(float2) == 8 && alignof(float3) == 4, "");
static_assert(alignof(uchar4) == 4 && alignof(ushort4) == 8 && sizeof(longlong2) == 16 && alignof(__half2) == 4, "");
struct alignas(32) Aligned { float x; };
static_assert(alignof(Aligned) == 32, "");

KERNEL(indices) {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    OUT(unsigned)[block * threads + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x
        + 10000 * blockIdx.y + 100000 * blockIdx.z;
}

__device__ float warp_sum(float x) {
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, distance);
    }
    return x;
}

KERNEL(shuffles) {
    const int i = threadIdx.x, n = blockDim.x;
    const int mine = IN(int)[i];
    OUT(int)[i] = __shfl_sync(0xffffffff, mine, 5);
    OUT(int)[n + i] = __shfl_sync(0xffffffff, mine, i + 1, 8);
    OUT(int)[2 * n + i] = __shfl_up_sync(0xffffffff, mine, 3, 16);
    OUT(int)[3 * n + i] = __shfl_down_sync(0xffffffff, mine, 3, 16);
    OUT(int)[4 * n + i] = __shfl_xor_sync(0xffffffff, mine, 9);
    OUT(int)[5 * n + i] = static_cast<int>(warp_sum(static_cast<float>(mine)));
    OUT(int)[6 * n + i] = static_cast<int>(__shfl_sync(0xffffffff, 4e15 + mine, 31) - 4e15);
    const unsigned half = i % 32 < 16 ? 0x0000ffff : 0xffff0000;
    if (i % 32 < 16) {
        OUT(int)[7 * n + i] = __shfl_xor_sync(half, mine, 1);
    } else {
        OUT(int)[7 * n + i] = __shfl_xor_sync(half, mine, 2) + __shfl_xor_sync(half, mine, 4);
    }
}

KERNEL(votes) {
    const int i = threadIdx.x;
    const bool aye = IN(int)[i] > 0;
    OUT(unsigned)[8 * i] = __ballot_sync(0xffffffff, aye);
    OUT(unsigned)[8 * i + 1] = __any_sync(0xffffffff, aye);
    OUT(unsigned)[8 * i + 2] = __all_sync(0xffffffff, aye);
    OUT(unsigned)[8 * i + 3] = __syncthreads_count(aye);
    OUT(unsigned)[8 * i + 4] = __syncthreads_or(aye);
    OUT(unsigned)[8 * i + 5] = __syncthreads_and(aye);
    OUT(unsigned)[8 * i + 6] = __activemask();
    __syncwarp();
    OUT(unsigned)[8 * i + 7] = __syncthreads_and(i >= 0);
}

template <int SIZE>
__device__ float next_in_template(float x) {
    __shared__ __align__(16) float staged[SIZE];
    __shared__ alignas(float4) float4 other;
    staged[threadIdx.x] = x;
    other.w = x;
    __syncthreads();
    const bool aligned = reinterpret_cast<size_t>(staged) % 16 == 0 && reinterpret_cast<size_t>(&other) % 16 == 0;
    return aligned ? staged[(threadIdx.x + 1) % SIZE] : other.w;
}

KERNEL(shared_memory) {
    extern __shared__ __align__(16) unsigned char bytes[];
    float* const dynamic = reinterpret_cast<float*>(bytes);
    __shared__ float fixed[64];
    const int i = threadIdx.x;
    const bool fresh = isnan(dynamic[i]) && isnan(fixed[i]);
    dynamic[i] = static_cast<float>(i);
    __syncthreads();
    fixed[63 - i] = dynamic[(i + 2) % 64];
    __syncthreads();
    OUT(float)[blockIdx.x * 64 + i] = fresh ? fixed[i] + 1000 * next_in_template<64>(static_cast<float>(i)) : -1.0f;
}

extern __shared__ float rows[][3];

KERNEL(shared_at_file_scope) {
    rows[threadIdx.x][1] = static_cast<float>(threadIdx.x);
    __syncthreads();
    OUT(float)[threadIdx.x] = rows[blockDim.x - 1 - threadIdx.x][1];
}

KERNEL(without_a_barrier) {
    __shared__ int staged[64];
    staged[threadIdx.x] = threadIdx.x;
    OUT(int)[threadIdx.x] = staged[(threadIdx.x + 63) % 64];
}

KERNEL(some_leave_early) {
    __shared__ int staged[64];
    if (threadIdx.x >= 40) {
        return;
    }
    staged[threadIdx.x] = threadIdx.x;
    __syncthreads();
    OUT(int)[threadIdx.x] = staged[39 - threadIdx.x] + __shfl_sync(0xffffffff, 100, 0);
}

KERNEL(divergence) {
    if (threadIdx.x < 32) {
        __syncthreads();  // first
    } else {
        __syncthreads();  // second
    }
}

KERNEL(deadlock) {
    if (threadIdx.x == 7) {
        __syncwarp();  // third
    } else {
        __syncthreads();  // fourth
    }
}

KERNEL(not_in_its_mask) { __shfl_sync(0x0000ffff, 1, 0); }  // fifth

KERNEL(traps) {
    if (threadIdx.x == 3) {
        __trap();
    }
    __syncthreads();
}

KERNEL(beyond_dynamic_shared) {
    extern __shared__ float few[];
    few[10] = 1.0f;
}

KERNEL(atomics) {
    atomicAdd(OUT(float), 1);
    atomicAdd(OUT(unsigned) + 1, 2u);
    atomicMax(OUT(int) + 2, static_cast<int>(threadIdx.x));
    atomicMin(OUT(int) + 3, -static_cast<int>(threadIdx.x));
    atomicCAS(OUT(int) + 4, 0, 9);
    if (threadIdx.x == 0) {
        OUT(int)[5] = atomicExch(OUT(int) + 6, 3);
    }
}

KERNEL(widen_all) {
    for (unsigned i = 0; i < 65536; ++i) {
        OUT(float)[2 * i] = __bfloat162float(__ushort_as_bfloat16(i));
        OUT(float)[2 * i + 1] = __half2float(__ushort_as_half(i));
    }
}

KERNEL(narrow) {
    const int count = blockDim.x * gridDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    OUT(unsigned short)[i] = __bfloat16_as_ushort(__float2bfloat16(IN(float)[i]));
    OUT(unsigned short)[count + i] = __half_as_ushort(__float2half_rn(IN(float)[i]));
}

KERNEL(pairs) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5f, -2.0f);
    const float2 both = __bfloat1622float2(__hadd2(pair, pair));
    OUT(float)[0] = both.x;
    OUT(float)[1] = both.y;
    OUT(float)[2] = __low2float(__floats2half2_rn(0.25f, 1.0f)) + __high2float(__half2half2(__float2half(3.0f)));
    const half2 fused = __hfma2(__floats2half2_rn(2.0f, 3.0f), __float2half2_rn(0.5f), __float2half2_rn(1.0f));
    OUT(float)[3] = __half22float2(fused).y;
    OUT(float)[4] = __hmul(__float2bfloat16(3.0f), __float2bfloat16(1.0078125f));
}

KERNEL(powers) {
    const int count = blockDim.x * gridDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    OUT(float)[i] = exp2f(IN(float)[i]);
    OUT(float)[count + i] = expf(IN(float)[i]);
    OUT(float)[2 * count + i] = __expf(IN(float)[i]);
}

KERNEL(small_functions) {
    OUT(float)[0] = fmaxf(NAN, 2.0f);
    OUT(float)[1] = fminf(3.0f, NAN);
    OUT(float)[2] = static_cast<float>(__popc(0xf0u) + 10 * __ffs(8) + 100 * __clz(1));
    OUT(float)[3] = rsqrtf(4.0f) + __fdividef(1.0f, 4.0f) + __fmaf_rn(2.0f, 3.0f, 4.0f);
    OUT(float)[4] = static_cast<float>(min(3, 4) + max(2u, 1u)) + max(1.5f, -1.0f);
    OUT(float)[5] = logf(expf(3.0f)) + log2f(8.0f) + __ldg(IN(float));
    OUT(float)[6] = __int_as_float(0x3f800000) + static_cast<float>(__float_as_int(0.0f)) + __float2int_rn(2.5f);
    OUT(float)[7] = -INFINITY;
    const float4 four = make_float4(1, 2, 3, 4);
    OUT(float)[8] = four.x + four.w + make_uint2(5, 6).y;
}
"""
NAMES = [line[7:].split(")")[0] for line in KERNELS.splitlines() if line.startswith("KERNEL(")]
MANIFEST = (
    '/*evo\ncontract = 1\nname = "functions"\ntargets = ["portable"]\n'
    + "".join(f'[[launch]]\nkernel = "{name}"\ngrid = ["1"]\nblock = ["1"]\n' for name in NAMES)
    + "*/\n"
)
LINES = {
    line.rpartition("// ")[2]: number
    for number, line in enumerate((MANIFEST + KERNELS).splitlines(), 1)
    if line.endswith(("// first", "// second", "// third", "// fourth", "// fifth"))
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> HostCompiler:
    cache = BuildCache(tmp_path_factory.mktemp("builds"), suffix=".so")
    return HostCompiler(include_dir=INCLUDE, cache=cache, processes=2, timeout_s=60, memory_bytes=4 << 30)


@pytest.fixture(scope="module")
def binary(compiler: HostCompiler) -> Path:
    build = Build(defines=(), element_type=ElementType.BF16)
    return compiler.compile(MANIFEST + KERNELS, [build])[0].binary


@pytest.fixture(scope="module")
def run(binary: Path) -> Callable[..., np.ndarray]:
    return launcher(HostLibrary(binary, 1))


def launcher(library: HostLibrary) -> Callable[..., np.ndarray]:
    def call(kernel, out, given=None, *, grid=1, block=1, shared_bytes=0, backwards=False):
        grid, block = ((*size, 1, 1)[:3] if isinstance(size, tuple) else (size, 1, 1) for size in (grid, block))
        workspaces = [array.ctypes.data for array in (out, given) if array is not None]
        parameters = pack_parameters(
            q=0, k=0, v=0, o=0, lse=0, workspaces=workspaces, scenario=SHAPE, softmax_scale=1.0
        ).tobytes()
        plan = LaunchPlan(kernel=kernel, grid=grid, block=block, shared_bytes=shared_bytes)
        library.launcher(plan, parameters)(backwards)
        return out

    return call


both_orders = pytest.mark.parametrize("backwards", [False, True])


@both_orders
def test_every_thread_of_every_block_runs_once_with_its_indices(run, backwards):
    out = run("indices", np.zeros(24 * 24, np.uint32), grid=(2, 3, 4), block=(4, 3, 2), backwards=backwards)

    x, y, z = np.meshgrid(np.arange(4), np.arange(3), np.arange(2), indexing="ij")
    threads = (x + 10 * y + 100 * z).transpose(2, 1, 0).ravel()
    x, y, z = np.meshgrid(np.arange(2), np.arange(3), np.arange(4), indexing="ij")
    blocks = (1000 * x + 10000 * y + 100000 * z).transpose(2, 1, 0).ravel()
    assert np.array_equal(out.reshape(24, 24), blocks[:, None] + threads)


@both_orders
def test_shuffles_move_values_between_the_lanes_of_a_warp(run, backwards):
    given = np.random.default_rng(0).integers(0, 1000, 64, dtype=np.int32)
    out = run("shuffles", np.zeros((8, 64), np.int32), given, block=64, backwards=backwards)

    lane = np.arange(64) % 32
    base = np.arange(64) - lane
    assert np.array_equal(out[0], given[base + 5])
    assert np.array_equal(out[1], given[base + lane // 8 * 8 + (lane + 1) % 8])
    assert np.array_equal(out[2], given[base + np.where(lane % 16 >= 3, lane - 3, lane)])
    assert np.array_equal(out[3], given[base + np.where(lane % 16 + 3 < 16, lane + 3, lane)])
    assert np.array_equal(out[4], given[base + (lane ^ 9)])
    assert np.array_equal(out[5], given.reshape(2, 32).sum(1).repeat(32))
    assert np.array_equal(out[6], given[base + 31])
    upper = given[base + (lane ^ 2)] + given[base + (lane ^ 4)]
    assert np.array_equal(out[7], np.where(lane < 16, given[base + (lane ^ 1)], upper))


@both_orders
def test_votes_count_the_threads_of_a_warp_and_of_a_block(run, backwards):
    given = np.zeros(48, np.int32)
    given[[1, 4, 40]] = 1
    out = run("votes", np.zeros((48, 8), np.uint32), given, block=48, backwards=backwards)

    assert out[0].tolist() == [0b10010, 1, 0, 3, 1, 0, 0xFFFFFFFF, 1]
    assert out[47].tolist() == [1 << 8, 1, 0, 3, 1, 0, 0xFFFF, 1]


@both_orders
def test_shared_memory_is_the_blocks_own_and_begins_as_nan(run, backwards):
    out = run("shared_memory", np.zeros((3, 64), np.float32), grid=3, block=64, shared_bytes=256, backwards=backwards)

    i = np.arange(64)
    assert np.array_equal(out, np.tile((63 - i + 2) % 64 + 1000.0 * ((i + 1) % 64), (3, 1)))


def test_dynamic_shared_memory_may_be_declared_outside_the_kernel_and_in_rows(run):
    out = run("shared_at_file_scope", np.zeros(8, np.float32), block=8, shared_bytes=96)

    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_missing_barrier_shows_in_one_of_the_two_orders(run):
    forwards = run("without_a_barrier", np.zeros(64, np.int32), block=64)
    backwards = run("without_a_barrier", np.zeros(64, np.int32), block=64, backwards=True)

    assert forwards.tolist() == [-1, *range(63)]  # only thread 0 reads what is not there yet
    assert backwards.tolist() == [63] + [-1] * 63


@both_orders
def test_threads_that_have_ended_are_not_waited_for(run, backwards):
    out = run("some_leave_early", np.zeros(64, np.int32), block=64, backwards=backwards)

    assert out.tolist() == [139 - i for i in range(40)] + [0] * 24


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("divergence", "barrier divergence: thread 0 waits at line {first} and thread 32 at line {second}"),
        ("deadlock", "deadlock: thread 0 waits at line {fourth} and thread 7 at line {third}"),
        ("not_in_its_mask", "thread 16, lane 16, is not in the mask 0x0000ffff of its warp function at line {fifth}"),
        ("traps", "__trap() was called by thread 3"),
        ("beyond_dynamic_shared", "a block wrote beyond its dynamic shared memory"),
    ],
)
def test_a_launch_that_cannot_end_well_says_why(run, kernel, reason):
    for _ in range(2):  # the second time shows that the first has left nothing behind
        with pytest.raises(CandidateFault) as raised:
            run(kernel, np.zeros(64, np.float32), block=64, shared_bytes=40)
        assert raised.value.status is Status.RUNTIME_ERROR
        assert raised.value.reason.removesuffix(" (block 0, 0, 0)") == f"{kernel}: {reason.format_map(LINES)}"
    assert run("some_leave_early", np.zeros(64, np.int32), block=64)[0] == 139


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics_add_up_over_blocks_and_processor_threads(binary, threads):
    out = launcher(HostLibrary(binary, threads))("atomics", np.zeros(8, np.int32), grid=500, block=64)

    assert out[:1].view(np.float32)[0] == 32000
    assert out[1:5].tolist() == [64000, 63, -63, 9]
    assert out[6] == 3


def test_small_floats_widen_to_the_values_that_torch_gives_them(run):
    out = torch.from_numpy(run("widen_all", np.zeros((65536, 2), np.float32)))

    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    for column, dtype in enumerate((torch.bfloat16, torch.float16)):
        assert torch.equal(out[:, column].nan_to_num(nan=7.0), bits.view(dtype).float().nan_to_num(nan=7.0))


def test_floats_narrow_to_the_nearest_even_and_nan_stays_nan(run):
    bits = torch.randint(-(2**31), 2**31, (65536,), dtype=torch.int64, generator=torch.Generator().manual_seed(0))
    given = bits.to(torch.int32).view(torch.float32)
    halves = torch.arange(0, 65536, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    ties = (halves[1:32768] + halves[:32767]) / 2  # half-way between neighbours, subnormal ones too
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 65504.0, 65519.99, 65520.0, 1e-8, 3.39e38, 1.00390625]
    given = torch.cat([given, ties, torch.tensor(special)])
    given = torch.cat([given, given.new_zeros(-len(given) % 256)])
    out = run("narrow", np.zeros((2, len(given)), np.uint16), given.numpy(), grid=len(given) // 256, block=256)

    for found, dtype in zip(torch.from_numpy(out.view(np.int16)), (torch.bfloat16, torch.float16), strict=True):
        expected = given.to(dtype)
        assert torch.equal(found.view(dtype).isnan(), expected.isnan())
        assert torch.equal(found[~expected.isnan()], expected.view(torch.int16)[~expected.isnan()])


def test_pairs_of_small_floats_are_worked_on_element_by_element(run):
    assert run("pairs", np.zeros(5, np.float32)).tolist() == [3.0, -4.0, 3.25, 2.5, 3.03125]


def test_powers_are_within_two_units_in_the_last_place(run):
    given = np.concatenate([np.linspace(-120, 120, 65000), np.linspace(-1, 1, 536)]).astype(np.float32)
    out = run("powers", np.zeros((3, 65536), np.float32), given, grid=256, block=256)

    wide = given.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = np.stack([np.exp2(wide), np.exp(wide)]).astype(np.float32)
    normal = (exact > 1e-37) & np.isfinite(exact)
    error = np.abs(out[:2][normal].astype(np.float64) - exact[normal]) / np.spacing(exact[normal])
    assert error.max() <= 2
    assert np.all(out[:2][exact < 1e-38] == 0)
    near = np.abs(given) < 20
    assert np.allclose(out[2][near], exact[1][near], rtol=3e-6)


def test_powers_of_infinities_and_nan(run):
    given = np.array([-np.inf, np.inf, np.nan, 0.0, 128.0, 127.75, -200.0, 1000.0], np.float32)
    out = run("powers", np.zeros((3, 8), np.float32), given, block=8)

    assert np.array_equal(out[0, [0, 1, 3, 4, 6, 7]], [0, np.inf, 1, np.inf, 0, np.inf])
    assert out[0, 5] == pytest.approx(2**127.75, rel=2e-7)
    assert np.array_equal(out[1, [0, 1, 3, 4, 6, 7]], [0, np.inf, 1, np.inf, 0, np.inf])
    assert np.all(np.isnan(out[:, 2]))


def test_small_functions(run):
    out = run("small_functions", np.zeros(9, np.float32), np.array([0.5], np.float32))

    assert out == pytest.approx([2, 3, 3144, 10.75, 6.5, 6.5, 3, -np.inf, 11])


def test_the_portable_context_switch_gives_the_same_results(compiler):
    build = Build(defines=(("EVO_UCONTEXT", 1),), element_type=ElementType.FP16)
    run = launcher(HostLibrary(compiler.compile(MANIFEST + KERNELS, [build])[0].binary, 1))

    assert run("some_leave_early", np.zeros(64, np.int32), block=64)[:40].tolist() == [139 - i for i in range(40)]
    given = np.arange(64, dtype=np.int32)
    assert run("shuffles", np.zeros((8, 64), np.int32), given, block=64)[4].tolist() == [(i ^ 9) for i in range(64)]
    with pytest.raises(CandidateFault, match="barrier divergence"):
        run("divergence", np.zeros(1, np.float32), block=64)
