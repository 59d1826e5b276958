"""Times of kernels that leave something out, side by side: what the missing part costs. None of them need be right.

Every kernel is bound once for each scenario, and then called alone, from a cold cache, in random order. A kernel that
does not compile is left out; a fault on the device ends the measuring, and what was measured before it is written.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.device import open_judge
from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.backends.backend import Backend, Bound
from fitness.faults import CandidateFault
from fitness.inputs import Distribution, draw_inputs
from fitness.plan import Build, SuitePlan
from fitness.probe import Machine
from fitness.scenario import Suite

ROUNDS = 9
Built = tuple[SuitePlan, dict[Build, Path]]


@dataclass(kw_only=True)
class Found:
    """What was measured, and what went wrong."""

    milliseconds: dict[str, dict[str, float]] = field(default_factory=dict)  # by scenario, then by kernel
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Run, print, write. Returns 1 where something is missing: a kernel, or the scenarios after a fault."""
    parser = argument_parser(__doc__, "left-out.json")
    parser.add_argument("kernels", nargs="+", type=Path, metavar="KERNEL.cu")
    parser.add_argument("--suite", default="core26")
    arguments = parser.parse_args()
    suite = load_suite(arguments.suite)
    with open_judge() as judge:
        from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

        found = Found()
        try:
            kernels = build_all(
                lambda path: judge.built(path.read_bytes().decode("utf-8"), suite), arguments.kernels, found
            )
            measure(CudaBackend(device_index=0), kernels, suite, found)
        finally:
            _tell(found, arguments.out, judge.machine, {"suite": suite.name}, {"nvrtc": judge.compiler.version})
    return int(bool(found.faults))


def build_all(build: Callable[[Path], Built], paths: Sequence[Path], found: Found) -> dict[str, Built]:
    """The kernels that can be built, by path; of the others `found` tells."""
    built = {}
    for path in paths:
        try:
            built[str(path)] = build(path)
        except CandidateFault as fault:
            found.faults.append(f"{path}: {fault}; left out")
    return built


def measure(backend: Backend, built: Mapping[str, Built], suite: Suite, found: Found) -> None:
    """Put each scenario's times into `found` once complete. A fault ends it: the device may be lost with it."""
    for place, scenario in enumerate(suite.scenarios if built else ()):
        try:
            found.milliseconds[scenario.name] = _medians(backend, built, place)
        except CandidateFault as fault:
            found.faults.append(f"on {scenario.name}, {fault}; nothing was measured after it")
            return


def _medians(backend: Backend, built: Mapping[str, Built], place: int) -> dict[str, float]:
    """Milliseconds of each kernel on the suite's scenario at that place. Raises CandidateFault, with its name."""
    bound: dict[str, Bound] = {}
    for name, (plan, binaries) in built.items():
        with _blaming(name):
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
            with _blaming(name):
                times[name].append(bound[name].replay.time_ms())
    return {name: statistics.median(each) for name, each in times.items()}


@contextmanager
def _blaming(kernel: str) -> Iterator[None]:
    try:
        yield
    except CandidateFault as fault:
        raise CandidateFault(fault.status, f"{kernel}: {fault.reason}") from fault


def _tell(
    found: Found, out: Path, machine: Machine, circumstances: Mapping[str, object], versions: Mapping[str, str]
) -> None:
    if found.milliseconds:
        head = ("ms", *next(iter(found.milliseconds.values())))
        print_table(head, [(name, *times.values()) for name, times in found.milliseconds.items()])
        write_record(
            out, machine, {**circumstances, "milliseconds": found.milliseconds, "faults": found.faults}, versions
        )
    for fault in found.faults:
        print(fault)


if __name__ == "__main__":
    raise SystemExit(ended(main))
