"""What one call leaves in a device, and that the next one finds none of it."""

import pytest

from tests.gpu.sources import replaced, rows, shape
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
