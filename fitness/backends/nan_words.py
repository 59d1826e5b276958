"""NaN patterns that nobody can foretell: what a candidate's memory holds before a call.

One fixed pattern would serve a kernel as memory that is initialised for nothing: a counter that begins at all ones.
"""

import secrets

import torch

_NAN = 0x7F81  # these bits set, and any others: a NaN as bf16 and as fp16, and two of them as float32
_ODD = 0xFF


def nan_generator(device: torch.device) -> torch.Generator:
    """What the patterns of one device are drawn from; it begins where nobody knows."""
    generator = torch.Generator(device)
    generator.manual_seed(secrets.randbits(63))
    return generator


def fill_with_nans(memory: torch.Tensor, generator: torch.Generator) -> None:
    """Fill `memory`, uint8 `[size]` from an even address on, with NaNs of 16 bits, of either sign, drawn one by one."""
    even = memory.numel() // 2 * 2
    memory[:even].view(torch.int16).random_(-(1 << 15), 1 << 15, generator=generator).bitwise_or_(_NAN)
    memory[even:].fill_(_ODD)
