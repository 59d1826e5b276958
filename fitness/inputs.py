"""The inputs that candidates are checked on: each a pure function of a distribution, a seed, the shape and the device.

One distribution hides what another shows. Plain normal values tell a lost key or a coarse type best, since nothing
else is imprecise there; but inputs scaled by 0.02 let an all-zero output pass an absolute bound, a flat softmax lets
the mean of v pass, and only large scores overflow an exponential that lost its reference.
"""

from enum import StrEnum

import torch

PEAKED_Q_SCALE = 8.0  # scores of standard deviation 8: a handful of keys carry a row
LARGE_QK_SCALE = 6.0  # of 36: exp() of a raw score overflows float32
LARGE_V_SCALE = 8.0
DOMINANT_KEYS = 4  # per batch entry and kv head, at positions drawn anew
DOMINANT_SCALE = 8.0
SHIFT = 2.0  # the mean of v, in standard deviations; half of it for k
SMALL_SCALE = 0.02


class Distribution(StrEnum):
    """What q, k and v are drawn from."""

    NORMAL = "normal"
    PEAKED = "peaked"
    LARGE = "large"
    DOMINANT = "dominant keys"
    SHIFTED = "shifted mean"
    SMALL = "small"


def draw_inputs(distribution: Distribution, rng_seed: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Fill q `[batch, seqlen_q, heads, head_dim]`, k and v `[batch, seqlen_k, kv_heads, head_dim]` in place.

    The same arguments on the same kind of device give the same bits, so a copy need never be kept: it is drawn again.
    """
    generator = torch.Generator(device=q.device).manual_seed(rng_seed)
    for tensor in (q, k, v):
        tensor.normal_(generator=generator)
    match distribution:
        case Distribution.NORMAL:
            pass
        case Distribution.PEAKED:
            q.mul_(PEAKED_Q_SCALE)
        case Distribution.LARGE:
            q.mul_(LARGE_QK_SCALE)
            k.mul_(LARGE_QK_SCALE)
            v.mul_(LARGE_V_SCALE)
        case Distribution.DOMINANT:
            _raise_some_keys(k, generator)
        case Distribution.SHIFTED:
            k.add_(SHIFT / 2)
            v.add_(SHIFT)
        case Distribution.SMALL:
            for tensor in (q, k, v):
                tensor.mul_(SMALL_SCALE)


def _raise_some_keys(k: torch.Tensor, generator: torch.Generator) -> None:
    batch, seqlen_k, kv_heads, head_dim = k.shape
    shape = (batch, DOMINANT_KEYS, kv_heads, 1)
    positions = torch.randint(seqlen_k, shape, generator=generator, device=k.device).expand(-1, -1, -1, head_dim)
    # Gathered first and written once: a position drawn twice is raised once.
    k.scatter_(1, positions, k.gather(1, positions) * DOMINANT_SCALE)
