"""Occupancy by hand: each limit in turn is the one that binds."""

import pytest
from drafts import compiled, judge_of, resources
from small_records import failed

from evo.tools.occupancy import LIMITS, Occupancy, blocks_by_limit
from fitness.evaluation import Status
from fitness.probe import Gpu

H200 = Gpu(index=0, name="NVIDIA H200", capability=(9, 0), sm_count=132, memory_gib=140.0)
NOT_JUDGED = failed("draft", Status.INVALID, "not judged")


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks"),
    [
        # 168 · 32 is 21 units of 256; 16384 registers of a partition hold 3 such warps, the multiprocessor 12
        (128, 168, 0, {"registers": 3, "shared memory": 228, "warps": 16, "blocks": 32}),
        (384, 168, 0, {"registers": 1, "shared memory": 228, "warps": 5, "blocks": 32}),
        (512, 168, 0, {"registers": 0, "shared memory": 228, "warps": 4, "blocks": 32}),
        (1024, 32, 0, {"registers": 2, "shared memory": 228, "warps": 2, "blocks": 32}),
        (1024, 33, 0, {"registers": 1, "shared memory": 228, "warps": 2, "blocks": 32}),  # 33 counts as 40
        (33, 32, 0, {"registers": 32, "shared memory": 228, "warps": 32, "blocks": 32}),  # 33 threads are two warps
        (32, 16, 232448, {"registers": 128, "shared memory": 1, "warps": 64, "blocks": 32}),  # the most there is
        (32, 16, 115712, {"registers": 128, "shared memory": 2, "warps": 64, "blocks": 32}),  # half of it, less 1 KiB
        (32, 16, 115713, {"registers": 128, "shared memory": 1, "warps": 64, "blocks": 32}),
        (32, 0, 0, {"registers": 256, "shared memory": 228, "warps": 64, "blocks": 32}),
    ],
)
def test_blocks_on_a_hopper_multiprocessor(threads, registers, shared_bytes, blocks):
    found = blocks_by_limit(LIMITS["sm_90"], threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert found == blocks


def test_smaller_cards_hold_less():
    least = blocks_by_limit(LIMITS["sm_86"], threads=32, registers=16, shared_bytes=40 << 10)
    assert least == {"registers": 128, "shared memory": 2, "warps": 48, "blocks": 16}


def test_each_kernel_has_a_line_with_what_limits_it():
    draft = compiled(resources(registers=168, shared_bytes=1024), resources("join", registers=32), shared_bytes=99328)
    first, second, source = Occupancy(judge_of(NOT_JUDGED, draft), H200).call("draft", {}).splitlines()
    assert first == (
        "attention_forward, element=bf16: 128 threads, 168 registers each, 100352 bytes of shared memory: 2 blocks on "
        "a multiprocessor, 8 of 64 warps, limited by shared memory (blocks allowed by registers 3, shared memory 2, "
        "warps 16, blocks 32); grids of 2 to 4 blocks, 0.01 to 0.02 waves"
    )
    assert second.startswith("join, element=bf16: 128 threads, 32 registers each, 99328 bytes")
    assert source.startswith("sm_90a, limits: CUDA C++ Programming Guide")


def test_a_kernel_that_does_not_fit_is_told_so():
    draft = compiled(resources(registers=168), block=512)
    line = Occupancy(judge_of(NOT_JUDGED, draft), H200).call("draft", {}).splitlines()[0]
    assert "0 blocks on a multiprocessor, 0 of 64 warps, limited by registers" in line
    assert line.endswith("it cannot be launched")


def test_what_cannot_be_worked_out_is_said_in_a_line():
    refused = judge_of(NOT_JUDGED, failed("draft", Status.COMPILE_ERROR, "candidate.cu(1): error"))
    assert Occupancy(refused, H200).call("draft", {}) == "COMPILE_ERROR: candidate.cu(1): error"
    assert Occupancy(judge_of(NOT_JUDGED), H200).call("d", {}) == "not available: nothing is compiled on this backend"
    assert Occupancy(refused, None).call("d", {}) == "not available: kernels are not judged on a GPU here"
    unknown = Gpu(index=0, name="new", capability=(13, 0), sm_count=1, memory_gib=1.0)
    assert Occupancy(refused, unknown).call("d", {}).startswith("not available: the limits of sm_130a are not known")
