"""What outlives a kernel in a device besides its tensors, cleared: shared memory, local memory, kept lines of the L2.

No instruction is needed to leave something there, and none to find it: memory that a kernel reads before it writes
holds what the last kernel on that multiprocessor left. Registers are out of reach of this; the kernels that fill
tensors and flush the cache between two calls use them over and over.
"""

import cupy
import torch
from cuda.bindings import driver

from fitness.backends.cuda_memory import PATTERN
from fitness.faults import EnvironmentFault

_LOCAL_WORDS = 128  # of each thread; what a kernel keeps beyond that is out of reach
_THREADS = 1024
# Volatile, for nobody reads what is written here. Two blocks of the second kernel fill a multiprocessor.
SOURCE = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) scrub_shared(unsigned int words) {{
    extern __shared__ unsigned int memory[];
    volatile unsigned int* const shared = memory;
    for (unsigned int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = {PATTERN * 0x01010101:#x}u;
}}
extern "C" __global__ void __launch_bounds__({_THREADS}, 2) scrub_local(unsigned int words) {{
    volatile unsigned int local[{_LOCAL_WORDS}];
    for (unsigned int i = 0; i < words; ++i) local[i] = {PATTERN * 0x01010101:#x}u;
}}
"""


class Scrubber:
    """Clears one device; its launches go to torch's current stream."""

    def __init__(self, device_index: int) -> None:
        runtime = cupy.cuda.runtime
        self._sm_count = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device_index)
        optin = runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin  # so much that one block fills a multiprocessor
        self._shared_bytes = runtime.deviceGetAttribute(optin, device_index)
        module = cupy.RawModule(code=SOURCE)
        self._shared, self._local = (module.get_function(name) for name in ("scrub_shared", "scrub_local"))
        self._shared.max_dynamic_shared_size_bytes = self._shared_bytes

    def scrub(self) -> None:
        """Fill every multiprocessor's shared memory, and the first 512 bytes of each thread's local memory."""
        words = cupy.uint32(self._shared_bytes // 4)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._local((2 * self._sm_count,), (_THREADS,), (cupy.uint32(_LOCAL_WORDS),))
            self._shared((self._sm_count,), (_THREADS,), (words,), shared_mem=self._shared_bytes)


def release_kept_lines() -> None:
    """Make lines of the L2 that a kernel marked to be evicted last like any other."""
    (error,) = driver.cuCtxResetPersistingL2Cache()
    if error not in (driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_NOT_SUPPORTED):
        raise EnvironmentFault(f"the lines kept in the L2 cannot be released: {error.name}")
