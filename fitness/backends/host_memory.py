"""Memory between pages without access, so that a write past a tensor's end is a fault and not a neighbour's data."""

import ctypes
import mmap
import os

import torch

from fitness.backends.nan_words import fill_with_nans

_LIBC = ctypes.CDLL(None, use_errno=True)
_NO_ACCESS = 0  # PROT_NONE, which the mmap module does not name
_ALIGNMENT = 16  # of a tensor's first byte: what the widest vector load of a kernel needs
_NAN_BYTE = 0xFF  # all bits set is a NaN in every element type


class GuardedBuffer:
    """`size` bytes whose end lies at a page without access, but for up to 15 bytes of padding.

    The padding, and what lies between the page without access below and the first byte, holds NaN patterns too:
    whoever reads there gets NaN, and `violation` finds whoever writes. Raises MemoryError where the system has no
    memory to give.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name, self.size = name, size
        padded = _round_up(size, _ALIGNMENT)
        self._lowest, self._end = mmap.PAGESIZE, mmap.PAGESIZE + _round_up(padded, mmap.PAGESIZE)
        self._start = self._end - padded
        try:
            self._map = mmap.mmap(-1, self._end + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"{size} bytes for {name} are not to be had: {error}") from error
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = base + self._start
        self._margins = ((base + self._lowest, self._start - self._lowest), (self.address + size, padded - size))
        for guard in (base, base + self._end):
            if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), _NO_ACCESS) != 0:
                raise MemoryError(f"no guard page for {name}: {os.strerror(ctypes.get_errno())}")
        self._seen = ""
        for address, length in self._margins:
            ctypes.memset(address, _NAN_BYTE, length)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """The whole buffer as a tensor; it keeps the memory alive."""
        count = self.size // dtype.itemsize
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=self._start).view(shape)

    def poison(self, nans: torch.Generator) -> None:
        """Fill the buffer with NaN patterns that are drawn anew."""
        fill_with_nans(self.tensor(torch.uint8, (self.size,)), nans)

    def poison_margins(self) -> None:
        """Fill what lies beside the buffer with NaN patterns, so that no call finds what another left there.

        `violation` remembers what stood there.
        """
        self.violation()
        for address, length in self._margins:
            ctypes.memset(address, _NAN_BYTE, length)

    def clear(self) -> None:
        """Fill the buffer with zeros."""
        ctypes.memset(self.address, 0, self.size)

    def violation(self) -> str:
        """What was written beside the buffer since it was made, in words; "" where nothing was."""
        for side, (address, length) in zip(("before the start", "past the end"), self._margins, strict=True):
            if not self._seen and ctypes.string_at(address, length).strip(bytes([_NAN_BYTE])):
                self._seen = f"it wrote {side} of {self._name}"
        return self._seen


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
