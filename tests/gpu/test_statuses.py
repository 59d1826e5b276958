"""What becomes of candidates that break things on a real device, and of the candidates after them."""

import pytest
import torch

from fitness.device_errors import environments_error
from fitness.evaluation import Status
from tests.gpu.sources import replaced, rows, shape

pytestmark = pytest.mark.gpu

SMALL = shape()
ENDLESS = "while (clock64() != -1) {}"  # a loop on a volatile variable of its own is optimised away
NULL_PAGE = "*reinterpret_cast<volatile int*>(16) = 1;"
FAR_AWAY = "params.o[int64_t(1) << 44] = to_element(1.0f);"
HUGE_WORKSPACE = '[[workspace]]\nbytes = "1099511627776"\n\n[[launch]]'  # a TiB
NAN = "__int_as_float(0x7fc00000)"
MEAN_OF_V = """
    for (int d = 0; d < HEAD_DIM; ++d) {
        float mean = 0.0f;
        for (int token = 0; token < visible; ++token)
            mean += to_float(params.v[row_start(batch, token, kv_head, params.seqlen_k, params.kv_heads) + d]);
        params.o[query + d] = to_element(mean / visible);
    }"""
EACH_ELEMENT = "for (int d = 0; d < HEAD_DIM; ++d) params.o[query + d] = to_element({});"


BROKEN = (
    (rows("at first", ENDLESS), Status.TIMEOUT, "took longer than 4 s"),
    (rows("at first", NULL_PAGE), Status.RUNTIME_ERROR, "illegal"),
    (rows("at first", FAR_AWAY), Status.RUNTIME_ERROR, "illegal"),
    (replaced(rows(), 'block = ["64"]', 'block = ["1024"]'), Status.RUNTIME_ERROR, "launching it failed"),
    (replaced(rows(), "[[launch]]", HUGE_WORKSPACE), Status.RUNTIME_ERROR, "its workspaces of 1.02e+03 GiB"),
)


def test_after_each_broken_candidate_the_next_is_judged_rightly_in_a_fresh_process(judge, worker):
    assert judge(rows(), [SMALL]).status is Status.PASSED
    pids = [worker.pid]
    for source, status, reason in BROKEN:
        broken = judge(source, [SMALL], call_timeout_s=4.0)
        assert (broken.status, broken.checks) == (status, ())
        assert reason in broken.reason
        assert judge(rows(), [SMALL]).status is Status.PASSED
        pids.append(worker.pid)
    assert None not in pids
    assert len(set(pids)) == len(pids)


def test_errors_of_cupy_and_torch_tell_their_number(machine):
    import cupy

    for ask in (cupy.cuda.runtime.setDevice, torch.cuda.set_device):
        with pytest.raises(RuntimeError) as error:
            ask(99)
        assert "failed with INVALID_DEVICE, which no kernel can" in str(environments_error(error.value))


def test_a_candidate_that_is_merely_wrong_leaves_the_process_running(judge, worker):
    assert judge(rows(), [SMALL]).status is Status.PASSED
    before = worker.pid
    assert judge(rows("at last", EACH_ELEMENT.format("0.0f")), [SMALL]).status is Status.INCORRECT
    assert worker.pid == before


def test_every_call_takes_time_and_the_figures_agree_with_each_other(judge):
    timed = judge(rows(), [SMALL, shape(causal=False)], repeats=5, least_repeats=5)
    assert timed.status is Status.PASSED
    for timing in timed.timings:
        assert len(timing.candidate_ms) == len(timing.baseline_ms) == 5
        assert min(*timing.candidate_ms, *timing.baseline_ms) > 0.0
        assert timing.speedup == timing.baseline_median_ms / timing.candidate_median_ms
    speedups = [timing.speedup for timing in timed.timings]
    assert timed.geomean == pytest.approx((speedups[0] * speedups[1]) ** 0.5)


@pytest.mark.parametrize(
    ("place", "fault", "reason"),
    [
        ("at last", EACH_ELEMENT.format("0.0f"), "o:"),
        ("at last", MEAN_OF_V, "o:"),
        ("at last", f"if (first) params.o[query] = to_element({NAN});", "o:"),
        ("at last", EACH_ELEMENT.format(NAN), "o:"),
        ("at first", "if (params.batch > 0) return;", "o:"),
        ("at first", "if (head == 1 && row == 129) return;", "o:"),
        ("at last", "*lse = 0.0f;", "lse:"),
        ("at last", f"if (row == params.seqlen_q - 1) *lse = {NAN};", "lse:"),
        ("at last", "*lse *= 1.44269504f;", "lse:"),
    ],
    ids=[
        "zeros", "mean of v", "one NaN", "NaN everywhere", "nothing written", "last row not written", "lse of zeros",
        "one NaN in lse", "lse in base 2",
    ],
)  # fmt: skip
def test_a_wrong_output_is_incorrect(judge, place, fault, reason):
    wrong = judge(rows(place, fault), [SMALL])
    assert wrong.status is Status.INCORRECT
    assert reason in wrong.reason


def test_an_lse_that_is_not_written_is_incorrect(judge):
    wrong = judge(replaced(rows(), "*lse = sum > 0.0f ? maximum + logf(sum) : -INFINITY;", ""), [SMALL])
    assert wrong.status is Status.INCORRECT
    assert wrong.reason.partition("inputs: ")[2].startswith("lse:")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("if (first) params.o[o_size] = to_element(0.0f);", "outside of o"),
        ("if (first) params.o[o_size + 20 * 1024] = to_element(0.0f);", "outside of o"),
        ("if (first) params.o[-1] = to_element(0.0f);", "outside of o"),
        ("if (first) params.lse[params.batch * params.heads * params.seqlen_q] = 0.0f;", "outside of lse"),
        ("if (first) const_cast<Element*>(params.v)[0] = to_element(7.0f);", "wrote to its inputs (v)"),
        ("if (first) const_cast<Element*>(params.q)[o_size - 1] = to_element(7.0f);", "wrote to its inputs (q)"),
        ("if (first) const_cast<Element*>(params.k)[k_size] = to_element(7.0f);", "outside of k"),
    ],
    ids=["one past o", "40 KiB past o", "before o", "one past lse", "into v", "into q", "one past k"],
)
def test_a_write_outside_the_outputs_is_incorrect_and_named(judge, fault, reason):
    stray = judge(rows("at last", fault), [SMALL])
    assert stray.status is Status.INCORRECT
    assert reason in stray.reason


@pytest.mark.parametrize("shared_bytes", [49152, 49153, 232448])
def test_dynamic_shared_memory_up_to_the_limit_can_be_used_to_its_last_byte(judge, hopper, shared_bytes):
    assert judge(with_shared_memory(shared_bytes), [SMALL]).status is Status.PASSED


def test_one_byte_more_of_shared_memory_is_invalid(judge):
    refused = judge(with_shared_memory(232449), [SMALL])
    assert refused.status is Status.INVALID
    assert "232449" in refused.reason


def with_shared_memory(size):
    """`rows` on so much dynamic shared memory, of which each thread needs one byte, counted from the end."""
    use = f"""
    extern __shared__ unsigned char memory[];
    volatile unsigned char* const mine = memory + {size} - 1 - threadIdx.x;
    *mine = static_cast<unsigned char>(row);
    if (*mine != static_cast<unsigned char>(row)) return;"""
    return replaced(rows("at first", use), 'shared_bytes = "0"', f'shared_bytes = "{size}"')


@pytest.mark.parametrize("included", ["<cutlass/cutlass.h>", '"/etc/hostname"', "<cstdint>", "<mma.h>"])
def test_other_includes_are_invalid(judge, included):
    contracts = '#include "attention.cuh"'
    refused = judge(replaced(rows(), contracts, f"{contracts}\n#include {included}"), [SMALL])
    assert refused.status is Status.INVALID
    assert included.strip('<>"') in refused.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('extern "C" __global__', "__global__", 'extern "C"'),
        ('kernel = "attention_forward"', 'kernel = "attention"', "no kernel attention is declared"),
        ("// Right as it stands.", "int main() { return 0; } //", "main"),
    ],
    ids=["no extern C", "a kernel that is not there", "a host main"],
)
def test_what_is_no_kernel_to_be_launched_is_invalid(judge, old, new, reason):
    refused = judge(replaced(rows(), old, new), [SMALL])
    assert refused.status is Status.INVALID
    assert reason in refused.reason


def test_a_launched_kernel_that_the_preprocessor_removed_is_a_compile_error(judge):
    declared = 'extern "C" __global__'
    hidden = replaced(rows(), declared, f"__global__ void other() {{}}\n#if 0\n{declared}")
    evaluation = judge(f"{hidden}#endif\n", [SMALL])
    assert evaluation.status is Status.COMPILE_ERROR
    assert "attention_forward" in evaluation.reason


def test_a_compile_that_never_ends_is_a_compile_error_and_the_next_source_compiles(judge, open_compiler):
    hasty = open_compiler(timeout_s=3.0)
    endless = judge(rows("at first", BUSY_COMPILER), [SMALL], with_compiler=hasty)
    assert endless.status is Status.COMPILE_ERROR
    assert endless.reason == "compiling took longer than 3 s"
    assert judge(rows(), [SMALL], with_compiler=hasty).status is Status.PASSED


# A million iterations, each unrolled, none of which can be left out.
BUSY_COMPILER = """
    float busy = 0.0f;
    #pragma unroll
    for (int i = 0; i < 1024; ++i) {
        #pragma unroll
        for (int j = 0; j < 1024; ++j) busy = __fmaf_rn(busy, params.softmax_scale, sinf(busy + i * j));
    }
    *lse = busy;"""


def test_a_kernel_that_could_remember_an_earlier_call_is_invalid(judge):
    remembering = rows("at first", "if (atomicAdd(&calls, 1) > 1000) return;")
    refused = judge(replaced(remembering, "// Where row", "__device__ int calls;\n// Where row"), [SMALL])
    assert refused.status is Status.INVALID
    assert "calls" in refused.reason


def test_a_kernel_for_another_device_is_unsupported(judge, gpu):
    other = "sm_100a" if gpu.arch != "sm_100a" else "sm_90a"
    evaluation = judge(replaced(rows(), '"portable"', f'"{other}"'), [SMALL])
    assert evaluation.status is Status.UNSUPPORTED
    assert gpu.name in evaluation.reason
