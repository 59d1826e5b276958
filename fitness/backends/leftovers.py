"""What a workspace that is not `zeroed` holds before a call: NaN patterns or small numbers, as a coin decides.

NaN shows whoever computes with what was never written, which small numbers would hide: as floats they are next to 0.
Small numbers show whoever takes NaN for a mark that nothing was begun yet: a counter that begins above its limit.
"""

import secrets
from collections.abc import Iterable, Iterator

import torch

from fitness.backends.nan_words import fill_with_nans

_MOST_BITS = 5  # of a small number: below the limit of whoever counts to 32 or further


class Leftovers:
    """What the calls of one bound candidate find in its workspaces.

    Of its first two calls one finds NaN patterns and the other small numbers, and so it is with each two that follow. A
    coin says which comes first, for whatever else goes by turns is not to meet the same of them each time.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._kinds = _kinds()
        self._least = 1  # a counter that finds 0 is right by luck; later 0 comes too, which a flag may take for done

    def put_into(self, workspaces: Iterable[torch.Tensor]) -> None:
        """Fill workspaces, uint8 `[size]` from an address on that 4 divides, all with what the next call is to find."""
        if next(self._kinds):
            limit = 2 << secrets.randbelow(_MOST_BITS)  # a counter that ends at 1 is wrong about 1 alone
            for memory in workspaces:
                fill_with_numbers(memory, self._least, limit, self._generator)
            self._least = secrets.randbelow(2)
        else:
            for memory in workspaces:
                fill_with_nans(memory, self._generator)


def fill_with_numbers(memory: torch.Tensor, least: int, limit: int, generator: torch.Generator) -> None:
    """Fill `memory`, as above, with whole numbers of 32 bits from `least` to `limit` - 1, drawn one by one.

    As float32 they are next to 0, as numbers of 16 bits each is small with a 0 behind it. Where the size is no multiple
    of 4, the last bytes are such numbers themselves.
    """
    whole = memory.numel() // 4 * 4
    memory[:whole].view(torch.int32).random_(least, limit, generator=generator)
    memory[whole:].random_(least, limit, generator=generator)


def _kinds() -> Iterator[bool]:
    """For each call whether it finds small numbers: one of the first two does, one of the next two, and so on."""
    while True:
        first = bool(secrets.randbits(1))
        yield first
        yield not first
