"""Device memory with guard zones on both sides: NaN to whoever reads there, a mark to whoever writes."""

import torch

GUARD_BYTES = 1 << 16  # on each side; a stray tile of a kernel is smaller
PATTERN = 0xFF  # NaN as bf16, fp16 and float32
_ALIGNMENT = 1024  # of every tensor: more than TMA asks for


class GuardedBuffer:
    """`size` bytes on a device between two guard zones."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._size = size
        padded = -(-size // _ALIGNMENT) * _ALIGNMENT
        self._whole = torch.full((2 * GUARD_BYTES + padded + _ALIGNMENT,), PATTERN, dtype=torch.uint8, device=device)
        self._stained = torch.zeros((), dtype=torch.bool, device=device)
        self._start = GUARD_BYTES + -(self._whole.data_ptr() + GUARD_BYTES) % _ALIGNMENT

    @property
    def bytes(self) -> torch.Tensor:
        """The bytes between the zones, uint8 `[size]`."""
        return self._whole[self._start : self._start + self._size]

    @property
    def address(self) -> int:
        """Of the first byte between the zones."""
        return self._whole.data_ptr() + self._start

    def poison_zones(self) -> None:
        """Fill the zones again, so that no call finds what another left there; `intact` remembers that it did."""
        self._stained |= self._stain()
        for zone in self._zones():
            zone.fill_(PATTERN)

    def poison(self) -> None:
        """Fill what lies between the zones with NaN patterns."""
        self.bytes.fill_(PATTERN)

    def as_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The bytes as a contiguous tensor."""
        return self.bytes.view(dtype).view(shape)

    def intact(self) -> bool:
        """Whether nothing was ever written into the zones."""
        return not bool(self._stained | self._stain())

    def _zones(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._whole[: self._start], self._whole[self._start + self._size :]

    def _stain(self) -> torch.Tensor:
        """Whether something stands in the zones; on the device, so that nobody waits for it."""
        below, above = self._zones()
        return (below != PATTERN).any() | (above != PATTERN).any()
