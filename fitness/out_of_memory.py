"""Whether an error says that memory ran out, on a device or on the host."""

import torch


def ran_out_of_memory(error: Exception) -> bool:
    """True for Python's and torch's errors of that kind; torch says it on a processor by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
