"""How far two measurements of the same thing differ: a kernel measured again and again, and FA3 against itself."""

import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.device import Judge, open_judge
from benchmarks.record import argument_parser, print_table, write_record
from evo.data import seed_folder
from evo.suites import load_suite
from fitness.backends.backend import Backend, Baseline, BaselineReplay, Tensors
from fitness.baselines.fa3 import Fa3Baseline
from fitness.plan import Build, ScenarioPlan, SuitePlan
from fitness.reference import compute_reference
from fitness.scenario import Scenario, Suite
from fitness.score import score_suite
from fitness.timing import time_scenario
from fitness.watch import Watch

TRIALS = 5


class BaselineAsCandidate:
    """A backend on which the candidate is the baseline itself, at the setting that is fastest, on tensors of its own.

    Poisoning also fills lse, which the judge asks for and a baseline does not give.
    """

    def __init__(self, backend: Backend, baseline: Baseline) -> None:
        self._backend = backend
        self._baseline = baseline
        self.device = backend.device
        self.capture = backend.capture
        self.flush_cache = backend.flush_cache
        self.clocks = backend.clocks

    def bind(self, plan: ScenarioPlan, binary: Path) -> "BoundBaseline":
        """The baseline on tensors like those that a candidate gets; the binary plays no part."""
        tensors = self._backend.bind(plan, binary).tensors
        calls = self._baseline.calls(tensors, plan.scenario).values()
        replay = min(map(self._backend.capture, calls), key=self._trial_ms)
        return BoundBaseline(replace(tensors, o=replay.output), replay, plan.scenario)

    def _trial_ms(self, replay: BaselineReplay) -> float:
        times = []
        for _ in range(TRIALS):
            self._backend.flush_cache()
            times.append(replay.time_ms())
        return statistics.median(times)


class BoundBaseline:
    """A baseline's call in the place of a candidate."""

    def __init__(self, tensors: Tensors, replay: BaselineReplay, scenario: Scenario) -> None:
        self.tensors = tensors
        self.replay = replay
        self._scenario = scenario

    def poison(self) -> None:
        """NaN in o, the right values in lse."""
        inputs = (self.tensors.q, self.tensors.k, self.tensors.v)
        self.tensors.lse.copy_(compute_reference(*inputs, self._scenario).lse)
        self.tensors.o.fill_(torch.nan)

    def violations(self) -> str:
        """A baseline is trusted."""
        return ""


def main() -> None:
    """Run, print, write."""
    parser = argument_parser(__doc__, "same-kernel-twice.json")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    suite = load_suite("core26")
    source = (seed_folder() / "mma.cu").read_text(encoding="utf-8")
    with open_judge() as judge:
        plan, binaries = judge.built(source, suite)
        from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

        backend, baseline = CudaBackend(device_index=0), Fa3Baseline()
        sides: dict[str, Backend] = {
            "mma against fa3": backend,
            "fa3 against itself": BaselineAsCandidate(backend, baseline),
        }
        figures = {
            what: _spread(partial(_round, judge, plan, binaries, side, baseline, suite), arguments.rounds)
            for what, side in sides.items()
        }
        versions = {"nvrtc": judge.compiler.version, "fa3": baseline.version}
    head = ("pair", "geomean", "max / min - 1", "worst scenario's max / min - 1")
    print_table(head, [(what, each["mean"], each["spread"], each["worst_spread"]) for what, each in figures.items()])
    write_record(arguments.out, judge.machine, {"suite": suite.name, "rounds": arguments.rounds, **figures}, versions)


def _spread(one_round: Callable[[random.Random], dict[str, float]], rounds: int) -> dict[str, object]:
    """The rounds' geometric means and how far they, and each scenario's speedups, lie apart."""
    found = [one_round(random.Random(number)) for number in range(rounds)]
    geomeans = [each.pop("geomean") for each in found]
    by_scenario = {name: [each[name] for each in found] for name in found[0]}
    return {
        "mean": statistics.mean(geomeans),
        "spread": max(geomeans) / min(geomeans) - 1.0,
        "worst_spread": max(max(speedups) / min(speedups) - 1.0 for speedups in by_scenario.values()),
        "geomeans": geomeans,
        "speedups": by_scenario,
    }


def _round(
    judge: Judge, plan: SuitePlan, binaries: dict[Build, Path], backend: Backend, baseline: Baseline, suite: Suite,
    rng: random.Random,
) -> dict[str, float]:  # fmt: skip
    """One timing of the whole suite: the speedups by scenario, and their geometric mean."""
    watch = Watch(lambda _step, _deadline_s: None, judge.settings)
    timings = []
    for each in plan.scenarios:
        timed = time_scenario(each, binaries, backend, baseline, judge.settings, rng, watch)
        if timed.timing is None:
            raise RuntimeError(f"wrong on {each.scenario.name}: {timed.check.reason}")
        timings.append(timed.timing)
    score = score_suite(timings, suite, judge.settings.bootstrap_draws)
    return {timing.scenario: timing.speedup for timing in timings} | {"geomean": score.geomean}


if __name__ == "__main__":
    main()
