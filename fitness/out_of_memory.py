"""Whether an error says that memory ran out, on a device or on the host."""

import torch

_SAID = ("out of memory", "out_of_memory", "alloc_failed", "can't allocate memory")  # CUDA, cuBLAS, a processor


def ran_out_of_memory(error: Exception) -> bool:
    """True for Python's and torch's errors of that kind, and for others that say so: many are plain RuntimeErrors."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(each in str(error).lower() for each in _SAID)
