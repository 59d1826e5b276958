"""The guard zones of a candidate's buffers, looked at and filled again by one launch for all of them."""

from collections.abc import Callable, Mapping
from typing import cast

import cupy
import numpy as np
import torch

from fitness.backends.cuda_memory import PATTERN, GuardedBuffer
from fitness.manifest import MAX_WORKSPACES

_MAX_ZONES = 2 * (5 + MAX_WORKSPACES)  # of q, k, v, o, lse and the workspaces
_ZONES_DTYPE = np.dtype([("zones", "<u8", (_MAX_ZONES, 2))])
_THREADS = 1024
_BLOCKS = 8  # a zone
# The addresses come by value: in device memory a candidate that strays could overwrite them, and this would stray too.
# Row `blockIdx.y` is a zone's address and its size in bytes; two zones in a row are those of one buffer.
SOURCE = f"""
struct Zones {{ unsigned long long zones[{_MAX_ZONES}][2]; }};
extern "C" __global__ void __launch_bounds__({_THREADS})
renew_zones(const __grid_constant__ Zones all, unsigned char* stained) {{
    unsigned char* const zone = reinterpret_cast<unsigned char*>(all.zones[blockIdx.y][0]);
    const unsigned long long size = all.zones[blockIdx.y][1];
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {{
        if (zone[i] == {PATTERN}) continue;
        stained[blockIdx.y / 2] = 1;
        zone[i] = {PATTERN};
    }}
}}
"""


class ZoneRenewer:
    """The compiled kernel; its launches go to torch's current stream."""

    def __init__(self) -> None:
        self._kernel = cupy.RawModule(code=SOURCE).get_function("renew_zones")

    def __call__(self, zones: np.void, count: int, stained: torch.Tensor) -> None:
        """Fill the first `count` of the zones; where one was not full, set the byte of its buffer in `stained`."""
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._kernel((_BLOCKS, count), (_THREADS,), (zones, cupy.uint64(stained.data_ptr())))


class GuardZones:
    """The zones of some buffers by name, and which of them were ever written to; a ZoneRenewer fills them."""

    def __init__(
        self, buffers: Mapping[str, GuardedBuffer], device: torch.device,
        renew: Callable[[np.void, int, torch.Tensor], None],
    ) -> None:  # fmt: skip
        self._buffers = dict(buffers)  # what the addresses point to stays alive
        self._renew = renew
        zones = np.zeros((), dtype=_ZONES_DTYPE)
        found = [(zone.data_ptr(), zone.numel()) for buffer in buffers.values() for zone in buffer.zones]
        zones["zones"][: len(found)] = found
        self._zones, self._count = cast(np.void, zones[()]), len(found)
        self._stained = torch.zeros(len(buffers), dtype=torch.uint8, device=device)

    def renew(self) -> None:
        """Fill all zones again, so that no call finds what another left there; `touched` remembers that it did."""
        self._renew(self._zones, self._count, self._stained)

    def touched(self) -> list[str]:
        """The buffers beside which something was written since they were made."""
        self.renew()
        return [name for name, stained in zip(self._buffers, self._stained.tolist(), strict=True) if stained]
