"""What a device can do at most, measured on the device itself in the same run: its roof, for the roofline model.

Williams, Waterman, Patterson: "Roofline", Communications of the ACM 52 (2009). A matrix product and a copy stand for
the two ceilings; a kernel may exceed what one product reached, so a share is a hint and no bound.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fitness.scenario import Scenario

_GPU_SIZE, _CPU_SIZE = 8192, 768  # rows and columns of the matrices: enough to fill the device
_GPU_COPY_BYTES, _CPU_COPY_BYTES = 1 << 31, 1 << 26  # far beyond any cache
_REPEATS = 5
SLACK = 1.10  # a kernel may outdo the matrix product that the roof was measured with, by less than this factor


@dataclass(frozen=True, kw_only=True)
class Roof:
    """The two ceilings of a device."""

    tflops: float  # of a large matrix product: bf16 on a GPU, float32 on a processor
    gb_per_s: float  # of a large copy, bytes read and bytes written together

    def milliseconds(self, scenario: Scenario) -> float:
        """The least time that a scenario's operations or bytes take under this roof."""
        return max(scenario.flops / (self.tflops * 1e9), scenario.bytes_moved / (self.gb_per_s * 1e6))


def measure_roof(device: torch.device) -> Roof:
    """The roof of a device that is otherwise idle. Takes well under a second."""
    on_gpu = device.type == "cuda"
    size, copied = (_GPU_SIZE, _GPU_COPY_BYTES) if on_gpu else (_CPU_SIZE, _CPU_COPY_BYTES)
    element = torch.bfloat16 if on_gpu else torch.float32
    left, right = (torch.randn(size, size, device=device, dtype=element) for _ in range(2))  # zeros multiply faster
    product = torch.empty_like(left)
    source = torch.ones(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    product_s = _median_s(lambda: torch.mm(left, right, out=product), device)
    copy_s = _median_s(lambda: target.copy_(source), device)
    return Roof(tflops=2 * size**3 / product_s / 1e12, gb_per_s=2 * copied / copy_s / 1e9)


def _median_s(call: Callable[[], object], device: torch.device) -> float:
    """Median wall-clock seconds of a call that is long against the host's own work."""
    times = []
    for _ in range(_REPEATS + 1):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
