"""What one call leaves in a device, and that the next one finds none of it."""

import numpy as np
import pytest
import torch

from fitness.backends.cuda_graphs import GraphMaker
from fitness.inputs import Distribution, draw_inputs
from tests.gpu.sources import HERE, replaced, rows, shape
from tests.gpu.test_call import called

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

LEFT_IN_SHARED = """
    extern __shared__ unsigned int memory[];
    volatile unsigned int* const mark = memory;
    for (int i = threadIdx.x; i < 40960; i += blockDim.x) *lse += (mark[i] & 0x7f817f81u) != 0x7f817f81u;
    __syncthreads();
    for (int i = threadIdx.x; i < 40960; i += blockDim.x) mark[i] = 12345;
    return;"""
LEFT_BESIDE_Q = "if (first) { *lse = to_float(params.q[-7]); const_cast<Element*>(params.q)[-7] = to_element(3.0f); }"


def test_shared_memory_holds_nothing_but_nans_when_a_call_begins(bind, hopper):
    source = rows("at first", f"*lse = 0.0f;{LEFT_IN_SHARED}")
    bound = bind(replaced(source, 'shared_bytes = "0"', 'shared_bytes = "163840"'), shape(seqlen_q=64, heads=1))
    for _ in range(5):
        assert not called(bound).lse.any()


def test_guard_zones_are_filled_before_every_call_and_remember_that_they_were_not_intact(bind):
    bound = bind(rows("at last", LEFT_BESIDE_Q), shape())
    for _ in range(3):
        assert called(bound).lse.flatten()[0].isnan()
        assert bound.violations() == "the candidate wrote outside of q"
    bound.poison()
    assert bound.violations() == "the candidate wrote outside of q"


def test_the_kernel_that_looks_for_an_answer_finds_one_that_lies_beside_its_output(bind):
    """Or that `answer_in_memory` passes would say nothing. The inputs are nobody else's here, nor is their answer."""
    bound = bind((HERE / "kernels" / "cheats" / "answer_in_memory.cu").read_text(), shape())
    tensors = called(bound, rng_seed=20261201)
    behind = tensors.o.as_strided((64,), (1,), tensors.o.storage_offset() + tensors.o.numel())  # in the guard zone
    answer = tensors.o[0, -1, 0].cpu()
    assert answer.any()  # it found none, or zeros would stand here
    for there in (True, False):
        draw_inputs(Distribution.NORMAL, 20261201, tensors.q, tensors.k, tensors.v)
        bound.poison()
        if there:
            behind.copy_(answer)
        bound.replay.run()
        assert bool(tensors.o[0, -1, 0].any()) is not there


COUNTS_IN_ITS_PARAMETERS = """
struct Parameters { int count; int* found; };
extern "C" __global__ void k(const __grid_constant__ Parameters params) {
    Parameters* own = const_cast<Parameters*>(&params);
    asm volatile("" : "+l"(own));
    *params.found = *const_cast<volatile int*>(&own->count);
    *const_cast<volatile int*>(&own->count) += 1;
}"""


def test_a_graphs_replay_finds_what_the_one_before_wrote_to_its_parameters(machine):
    """Why such sources are refused. Should it ever find nothing, the rule would have lost its reason."""
    import cupy

    found = torch.zeros(1, dtype=torch.int32, device="cuda")
    parameters = np.zeros(1, dtype=[("count", "i4"), ("padding", "i4"), ("found", "u8")])
    parameters["found"] = found.data_ptr()
    kernel = cupy.RawModule(code=COUNTS_IN_ITS_PARAMETERS).get_function("k")

    def call():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel((1,), (1,), (parameters[0],))

    maker = GraphMaker(torch.device("cuda", 0))
    maker.rehearse(call)
    graph = maker.capture(call)
    counts = []
    for _ in range(3):
        graph.replay()
        counts.append(int(found))
    assert counts == [0, 1, 2]
