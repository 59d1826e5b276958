"""How far timings of the same two sides differ, bound once: a kernel timed again and again, and FA3 against itself.

How far whole evaluations do, evaluations_apart.py tells.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.device import open_judge
from benchmarks.ending import ended, keeping
from benchmarks.record import argument_parser, print_table, write_record
from evo.data import seed_folder
from evo.suites import load_suite
from fitness.backends.backend import Backend, Baseline, BaselineReplay, Tensors
from fitness.baselines.fa3 import Fa3Baseline
from fitness.baselines.fastest import FastestSetting
from fitness.correctness import SEED_BITS
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, ScenarioPlan
from fitness.probe import Machine
from fitness.reference import compute_reference
from fitness.scenario import Scenario, Suite
from fitness.score import score_suite
from fitness.timing import Pair, make_pair, time_pair
from fitness.watch import Watch

CLOSE = 0.003  # of the median: what timings of two sides that were bound once may differ by


@dataclass(frozen=True, kw_only=True)
class Round:
    """One timing of the whole suite."""

    geomean: float
    speedups: Mapping[str, float]  # by scenario


class BaselineAsCandidate:
    """A backend on which the candidate is the baseline itself, at the setting that is fastest, on tensors of its own.

    Poisoning also fills lse, which the judge asks for and a baseline does not give.
    """

    def __init__(self, backend: Backend, baseline: Baseline, settings: JudgeSettings) -> None:
        self._backend = backend
        self._fastest = FastestSetting(baseline, backend)
        self._watch = _nobody_watches(settings)
        self.device = backend.device
        self.capture = backend.capture
        self.flush_cache = backend.flush_cache
        self.clocks = backend.clocks

    def bind(self, plan: ScenarioPlan, binary: Path) -> "BoundBaseline":
        """The baseline on tensors like those that a candidate gets; the binary plays no part."""
        tensors = self._backend.bind(plan, binary).tensors
        draw_inputs(Distribution.NORMAL, 0, tensors.q, tensors.k, tensors.v)  # for a setting is chosen by what it gives
        replay = self._fastest.call(tensors, plan.scenario, self._watch).replay
        return BoundBaseline(replace(tensors, o=replay.output), replay, plan.scenario)


class BoundBaseline:
    """A baseline's call in the place of a candidate."""

    def __init__(self, tensors: Tensors, replay: BaselineReplay, scenario: Scenario) -> None:
        self.tensors = tensors
        self.replay = replay
        self._scenario = scenario
        self._lse: dict[tuple[float, ...], torch.Tensor] = {}

    def poison(self) -> None:
        """NaN in o, the right values in lse: worked out once for each of the few inputs, and then remembered."""
        inputs = (self.tensors.q, self.tensors.k, self.tensors.v)
        known_by = tuple(self.tensors.q.flatten()[:16].tolist())
        if known_by not in self._lse:
            self._lse[known_by] = compute_reference(*inputs, self._scenario).lse
        self.tensors.lse.copy_(self._lse[known_by])
        self.tensors.o.fill_(torch.nan)

    def violations(self) -> str:
        """A baseline is trusted."""
        return ""


class FewInputs(random.Random):
    """Draws the seeds of inputs from three, so that a round costs little; all else as ever."""

    def getrandbits(self, k: int, /) -> int:
        """k random bits, which for a seed are one of three values."""
        bits = super().getrandbits(k)
        return bits % 3 if k == SEED_BITS else bits


def main() -> int:
    """Run, print, write: of a run that a fault ends the rounds before it. Returns 0."""
    parser = argument_parser(__doc__, "same-kernel-twice.json")
    parser.add_argument("--rounds", type=int, default=5, help="timings of the whole suite, for each of the two pairs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further round after so long")
    parser.add_argument("--only-baseline", action="store_true", help="leave the kernel out: fa3 against itself alone")
    arguments = parser.parse_args()
    suite = load_suite("core26")
    source = (seed_folder() / "mma.cu").read_text(encoding="utf-8")
    with open_judge() as judge:
        plan, binaries = judge.built(source, suite)
        from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

        backend, baseline = CudaBackend(device_index=0), Fa3Baseline()
        sides: dict[str, Backend] = {"fa3 against itself": BaselineAsCandidate(backend, baseline, judge.settings)}
        if not arguments.only_baseline:
            sides["mma against fa3"] = backend
        versions = {"nvrtc": judge.compiler.version, "fa3": baseline.version}
        end = time.monotonic() + arguments.seconds
        found: dict[str, list[Round]] = {}
        with keeping(lambda cause: tell(found, cause, suite, arguments.out, judge.machine, versions)):
            for place, (what, side) in enumerate(sides.items()):
                share = (end - time.monotonic()) / (len(sides) - place)
                fastest = FastestSetting(baseline, side)
                pairs = [_pair(each, binaries, side, fastest, judge.settings) for each in plan.scenarios]
                one_round = partial(_round, pairs, judge.settings, suite)
                repeat(one_round, arguments.rounds, share, found.setdefault(what, []))
                del pairs, one_round  # their tensors fill a good part of the device
    return 0


def tell(
    found: Mapping[str, Sequence[Round]], cause: str, suite: Suite, out: Path, machine: Machine,
    versions: Mapping[str, str],
) -> None:  # fmt: skip
    """Print and write how far the rounds lie apart, with what ended them early; nothing where there is none."""
    figures = {what: _spread(rounds) for what, rounds in found.items() if rounds}
    if not figures:
        return
    head = ("pair", "rounds", "median geomean", "within 0.3 % of it", "max / min - 1", "worst scenario's max / min - 1")
    columns = ("rounds", "median", "within", "spread", "worst_spread")
    print_table(head, [(what, *(each[column] for column in columns)) for what, each in figures.items()])
    write_record(out, machine, {"suite": suite.name, **figures, "ended_by": cause}, versions)


def _pair(
    plan: ScenarioPlan, binaries: dict[Build, Path], backend: Backend, baseline: FastestSetting, settings: JudgeSettings
) -> Pair:
    """Both sides of a scenario, bound and captured once for all rounds."""
    bound = backend.bind(plan, binaries[plan.build])
    return make_pair(plan.scenario, bound, backend, baseline, _nobody_watches(settings))


def _nobody_watches(settings: JudgeSettings) -> Watch:
    return Watch(lambda _step, _deadline_s: None, settings)


def repeat(one_round: Callable[[random.Random], Round], rounds: int, seconds: float, found: list[Round]) -> None:
    """Add rounds to `found` as they are made: one, and more for as long as there is time.

    The first of all warms the device up and does not count.
    """
    end = time.monotonic() + seconds
    one_round(FewInputs(0))
    found.append(one_round(FewInputs(1)))
    while len(found) < rounds and time.monotonic() < end:
        found.append(one_round(FewInputs(1 + len(found))))


def _spread(found: Sequence[Round]) -> dict[str, object]:
    """The rounds' geometric means and how far they, and each scenario's speedups, lie apart; one round at least."""
    geomeans = [each.geomean for each in found]
    by_scenario = {name: [each.speedups[name] for each in found] for name in found[0].speedups}
    median = statistics.median(geomeans)
    return {
        "rounds": len(found),
        "median": median,
        "within": statistics.mean(abs(each / median - 1.0) <= CLOSE for each in geomeans),
        "spread": max(geomeans) / min(geomeans) - 1.0,
        "worst_spread": max(max(speedups) / min(speedups) - 1.0 for speedups in by_scenario.values()),
        "geomeans": geomeans,
        "speedups": by_scenario,
    }


def _round(pairs: Sequence[Pair], settings: JudgeSettings, suite: Suite, rng: random.Random) -> Round:
    """One timing of the whole suite. Raises CandidateFault for an output that is wrong."""
    timings = []
    for pair in pairs:
        timed = time_pair(pair, settings, rng)
        if timed.timing is None:
            raise CandidateFault(Status.INCORRECT, f"wrong on {pair.scenario.name}: {timed.check.reason}")
        timings.append(timed.timing)
    score = score_suite(timings, suite, settings.bootstrap_draws)
    return Round(geomean=score.geomean, speedups={timing.scenario: timing.speedup for timing in timings})


if __name__ == "__main__":
    raise SystemExit(ended(main))
