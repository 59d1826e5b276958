"""What a call costs the host: kernels loaded by `evo.runtime` beside FlashAttention-3's own Python interface.

The shape is tiny, so that the device is done long before the host has enqueued the next call. The calls of all sides
take turns in short rounds, each ended by a wait that is not counted.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.device import first_gpu
from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.runtime import load_kernel
from fitness.baselines.selection import build_baseline
from fitness.probe import look_around

SHAPE = (1, 128, 4, 64)  # batch, seqlen, heads, head_dim
KERNELS = {"mma": "kernels/seed/mma.cu", "h1": "tests/fitness/kernels/hopper/h1.cu"}
CALLS = 100  # of one round: few enough that the queue of launches never fills
ROUNDS = 200
WARMUP_ROUNDS = 10


def main() -> int:
    """Run, print, write. Returns 0."""
    arguments = argument_parser(__doc__, "runtime-overhead.json").parse_args()
    machine = look_around()
    first_gpu(machine)
    fa3 = build_baseline("fa3")
    from flash_attn_interface import flash_attn_func

    q, k, v = (torch.randn(SHAPE, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    with tempfile.TemporaryDirectory() as cache:
        loaded = {name: load_kernel(path, cache=cache) for name, path in KERNELS.items()}
        sides: dict[str, Callable[[], object]] = {"fa3": lambda: flash_attn_func(q, k, v, causal=True)}
        for name, attention in loaded.items():
            sides[name] = lambda attention=attention: attention(q, k, v, causal=True)
        plain, without_grad = _measure(sides), _measured_without_grad(sides)
    median = statistics.median
    rows = [(name, median(plain[name]), median(without_grad[name]), min(plain[name])) for name in sides]
    print_table(("host microseconds a call", "median", "in inference mode", "least"), rows)
    figures = {
        "shape": "b1 h4 s128 d64 causal bf16",
        "calls_a_round": CALLS,
        "rounds": ROUNDS,
        "host_us": {
            name: {"median": middle, "median_inference_mode": inference, "least": least}
            for name, middle, inference, least in rows
        },
    }
    write_record(arguments.out, machine, figures, {"fa3": fa3.version})
    return 0


def _measured_without_grad(sides: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    with torch.inference_mode():
        return _measure(sides)


def _measure(sides: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Microseconds a call, one figure a round, after the first rounds."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(WARMUP_ROUNDS + ROUNDS):
        for name, call in sides.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name].append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return {name: each[WARMUP_ROUNDS:] for name, each in found.items()}


if __name__ == "__main__":
    raise SystemExit(ended(main))
