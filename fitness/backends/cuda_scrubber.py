"""What outlives a kernel in a device besides its tensors, cleared: shared memory and kept lines of the L2.

No instruction is needed to leave something there, and none to find it: memory that a kernel reads before it writes
holds what the last kernel on that multiprocessor left. Registers and local memory are out of reach of this: where the
next kernel's lie is the driver's affair.
"""

import secrets

import cupy
import torch
from cuda.bindings import driver

from fitness.faults import EnvironmentFault

_THREADS = 1024
# Volatile, for nobody reads what is written here.
SOURCE = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) scrub_shared(unsigned int words, unsigned int key) {{
    extern __shared__ unsigned int memory[];
    volatile unsigned int* const shared = memory;
    for (unsigned int i = threadIdx.x; i < words; i += blockDim.x) {{
        unsigned int mixed = (i ^ blockIdx.x << 20 ^ key) * 2654435761u;
        mixed = (mixed ^ mixed >> 15) * 2246822519u;
        shared[i] = (mixed ^ mixed >> 13) | 0x7F817F81u;  // two NaNs of 16 bits
    }}
}}
"""


class Scrubber:
    """Clears one device; its launches go to torch's current stream."""

    def __init__(self, device_index: int) -> None:
        runtime = cupy.cuda.runtime
        self._sm_count = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device_index)
        optin = runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin  # so much that one block fills a multiprocessor
        self._shared_bytes = runtime.deviceGetAttribute(optin, device_index)
        self._shared = cupy.RawModule(code=SOURCE).get_function("scrub_shared")
        self._shared.max_dynamic_shared_size_bytes = self._shared_bytes

    def scrub(self) -> None:
        """Fill every multiprocessor's shared memory with NaN patterns that nobody can foretell."""
        words, key = cupy.uint32(self._shared_bytes // 4), cupy.uint32(secrets.randbits(32))
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._shared((self._sm_count,), (_THREADS,), (words, key), shared_mem=self._shared_bytes)


def release_kept_lines() -> None:
    """Make lines of the L2 that a kernel marked to be evicted last like any other."""
    (error,) = driver.cuCtxResetPersistingL2Cache()
    if error not in (driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_NOT_SUPPORTED):
        raise EnvironmentFault(f"the lines kept in the L2 cannot be released: {error.name}")
