"""What one build may take: of the device, where the judge needs room beside it, and of the records that tell of it."""

from collections.abc import Sequence

from fitness.cubin import Cubin
from fitness.evaluation import KernelResources
from fitness.faults import invalid

MAX_KERNELS = 64
MAX_NAME = 1000  # characters, of a kernel
MAX_STACK_BYTES = 16 << 10  # of a thread: a device keeps as much for all that it can hold, 4 GiB on an H200
MAX_STATIC_BYTES = 64 << 20  # of device memory: it stands in no workspace's size, so that nobody would know who took it


def refuse_excess(cubin: Cubin, resources: Sequence[KernelResources]) -> None:
    """Return where a build keeps within the limits. Raises CandidateFault (INVALID), which says what came."""
    longest = max(map(len, cubin.kernels), default=0)
    deepest = max(resources, key=lambda each: each.stack_bytes)
    found = (
        (len(cubin.kernels), MAX_KERNELS, "the source has {} kernels; at most {} are allowed"),
        (longest, MAX_NAME, "a kernel's name has {} characters; at most {} are allowed"),
        (
            cubin.static_bytes, MAX_STATIC_BYTES,
            "the source's variables take {} bytes of device memory; at most {} are allowed; use a [[workspace]]",
        ),
        (
            deepest.stack_bytes, MAX_STACK_BYTES,
            f"each thread of {deepest.kernel[:MAX_NAME]} takes {{}} bytes of local memory, for arrays that no "
            "registers hold; at most {} are allowed",
        ),
    )  # fmt: skip
    for came, most, words in found:
        if came > most:
            raise invalid(words.format(came, most))
