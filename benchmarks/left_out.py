"""Times of kernels that leave something out, side by side: what the missing part costs. None of them need be right.

Every kernel is bound once for each scenario, and then called alone, from a cold cache, in random order.
"""

import random
import statistics
from pathlib import Path

from benchmarks.device import open_judge
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.backends.backend import Backend, Bound
from fitness.inputs import Distribution, draw_inputs
from fitness.plan import Build, SuitePlan

ROUNDS = 9


def main() -> None:
    """Run, print, write."""
    parser = argument_parser(__doc__, "left-out.json")
    parser.add_argument("kernels", nargs="+", type=Path, metavar="KERNEL.cu")
    parser.add_argument("--suite", default="core26")
    arguments = parser.parse_args()
    suite = load_suite(arguments.suite)
    with open_judge() as judge:
        from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

        backend = CudaBackend(device_index=0)
        built = {str(path): judge.built(path.read_text(encoding="utf-8"), suite) for path in arguments.kernels}
        milliseconds = {
            scenario.name: _medians(backend, built, place) for place, scenario in enumerate(suite.scenarios)
        }
        versions = {"nvrtc": judge.compiler.version}
    print_table(("ms", *built), [(name, *times.values()) for name, times in milliseconds.items()])
    write_record(arguments.out, judge.machine, {"suite": suite.name, "milliseconds": milliseconds}, versions)


def _medians(backend: Backend, built: dict[str, tuple[SuitePlan, dict[Build, Path]]], place: int) -> dict[str, float]:
    """Milliseconds of each kernel on the suite's scenario at that place."""
    bound: dict[str, Bound] = {}
    for name, (plan, binaries) in built.items():
        scenario = plan.scenarios[place]
        bound[name] = backend.bind(scenario, binaries[scenario.build])
        tensors = bound[name].tensors
        draw_inputs(Distribution.NORMAL, place, tensors.q, tensors.k, tensors.v)
        bound[name].poison()
        bound[name].replay.run()
    times: dict[str, list[float]] = {name: [] for name in bound}
    for _ in range(ROUNDS):
        for name in random.sample(list(bound), len(bound)):
            backend.flush_cache()
            times[name].append(bound[name].replay.time_ms())
    return {name: statistics.median(each) for name, each in times.items()}


if __name__ == "__main__":
    main()
