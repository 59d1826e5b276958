"""Device memory with guard zones on both sides: NaN to whoever reads there, a mark to whoever writes."""

import torch

from fitness.backends.nan_words import fill_with_nans

GUARD_BYTES = 1 << 16  # on each side; a stray tile of a kernel is smaller
PATTERN = 0xFF  # NaN as bf16, fp16 and float32
_ALIGNMENT = 1024  # of every tensor: more than TMA asks for


class GuardedBuffer:
    """`size` bytes on a device between two guard zones."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._size = size
        padded = -(-size // _ALIGNMENT) * _ALIGNMENT
        self._whole = torch.full((2 * GUARD_BYTES + padded + _ALIGNMENT,), PATTERN, dtype=torch.uint8, device=device)
        self._start = GUARD_BYTES + -(self._whole.data_ptr() + GUARD_BYTES) % _ALIGNMENT

    @property
    def bytes(self) -> torch.Tensor:
        """The bytes between the zones, uint8 `[size]`."""
        return self._whole[self._start : self._start + self._size]

    @property
    def address(self) -> int:
        """Of the first byte between the zones."""
        return self._whole.data_ptr() + self._start

    @property
    def zones(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All bytes below and above those, uint8; `PATTERN` until somebody writes there."""
        return self._whole[: self._start], self._whole[self._start + self._size :]

    def poison(self, nans: torch.Generator) -> None:
        """Fill what lies between the zones with NaN patterns that are drawn anew."""
        fill_with_nans(self.bytes, nans)

    def as_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The bytes as a contiguous tensor."""
        return self.bytes.view(dtype).view(shape)
