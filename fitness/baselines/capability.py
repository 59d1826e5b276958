"""What the GPU of this process can do."""

import torch

Capability = tuple[int, int]  # (9, 0) for sm_90


def gpu_capability() -> Capability | None:
    """Of the current GPU; None where torch finds none."""
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None
