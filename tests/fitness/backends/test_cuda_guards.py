"""Guard zones of many buffers at once: who was written beside is told, by name and for good.

NumPy does the kernel's part, so that no GPU is needed; the kernel itself is compiled, and run in tests/gpu.
"""

import ctypes

import numpy as np
import pytest
import torch

pytest.importorskip("cupy")
pytest.importorskip("cuda.bindings")

from cuda.bindings import nvrtc

from fitness.backends.cuda_guards import SOURCE, GuardZones
from fitness.backends.cuda_memory import PATTERN, GuardedBuffer
from fitness.backends.cuda_scrubber import SOURCE as SCRUBBER_SOURCE

CPU = torch.device("cpu")


def renew_in_host_memory(zones, count, stained):
    """What the kernel does, on zones that lie in the host's memory."""
    for index, (address, size) in enumerate(zones["zones"][:count].tolist()):
        zone = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))
        if (zone != PATTERN).any():
            stained[index // 2] = 1
            zone[:] = PATTERN


@pytest.fixture
def buffers():
    return {"o": GuardedBuffer(4096, CPU), "lse": GuardedBuffer(100, CPU), "workspace[1]": GuardedBuffer(7, CPU)}


@pytest.fixture
def guards(buffers):
    return GuardZones(buffers, CPU, renew_in_host_memory)


def test_what_lies_between_the_zones_is_nobodys_affair(buffers, guards):
    for buffer in buffers.values():
        buffer.bytes.zero_()
    assert guards.touched() == []
    assert not any(buffer.bytes.any() for buffer in buffers.values())


@pytest.mark.parametrize(("zone", "byte"), [(0, 0), (0, -1), (1, 0), (1, -1)])
@pytest.mark.parametrize("name", ["o", "lse", "workspace[1]"])
def test_a_byte_beside_a_buffer_names_it_however_often_the_zones_are_filled_again(buffers, guards, name, zone, byte):
    buffers[name].zones[zone][byte] = 0
    guards.renew()
    assert buffers[name].zones[zone][byte] == PATTERN
    guards.renew()
    assert guards.touched() == [name]


@pytest.mark.parametrize("source", [SOURCE, SCRUBBER_SOURCE], ids=["guards", "scrubber"])
def test_the_kernels_between_two_calls_compile(source):
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_80"]) == (nvrtc.nvrtcResult.NVRTC_SUCCESS,)
