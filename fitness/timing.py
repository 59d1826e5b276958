"""The timing stage: a scenario's candidate beside the baseline, call by call, on the same fresh inputs.

Each pair of calls gets new inputs, poisoned outputs and a cold cache, and the two go in random order, so that a drift
of the clock rate meets both. The baseline's output is poisoned before the candidate runs: nothing is there to copy.
"""

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fitness.backends.backend import Backend, Bound, Replay, Tensors
from fitness.baselines.fastest import FastestCall, FastestSetting
from fitness.correctness import SEED_BITS, bind_watched, judge_output, refuse_violations
from fitness.evaluation import ScenarioCheck, ScenarioTiming
from fitness.faults import EnvironmentFault
from fitness.gate import Case
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, ScenarioPlan
from fitness.row_sample import draw_block, judge_rows
from fitness.scenario import Scenario
from fitness.score import precise_enough, speedup_interval
from fitness.watch import Watch

TIMED_DISTRIBUTION = Distribution.NORMAL
MAX_BASELINE_DIFFERENCE = 0.02  # of the output's Euclidean norm; two right kernels differ by 0.004, fp8 costs 0.026


@dataclass(frozen=True, kw_only=True)
class TimedScenario:
    """A scenario's times, and the verdict on the outputs of the timed calls.

    One of them is held against the reference, all against the baseline's, and some of their rows to the gate's rules.
    """

    timing: ScenarioTiming | None  # None where that output is wrong: times of a wrong result mean nothing
    check: ScenarioCheck


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Both sides of a scenario, made ready, each on its own tensors."""

    scenario: Scenario
    bound: Bound
    baseline_tensors: Tensors
    baseline: FastestCall
    backend: Backend
    watch: Watch

    def set_inputs(self, input_seed: int) -> None:
        ours, theirs = self.baseline_tensors, self.bound.tensors
        draw_inputs(TIMED_DISTRIBUTION, input_seed, ours.q, ours.k, ours.v)
        for source, target in ((ours.q, theirs.q), (ours.k, theirs.k), (ours.v, theirs.v)):
            target.copy_(source)

    def poison(self) -> None:
        """NaN patterns in both sides' outputs, and wherever else the candidate is not to find anything."""
        self.baseline.replay.output.fill_(math.nan)
        self.bound.poison()

    def warm_up(self) -> None:
        """One call of each side, from whatever cache there is, but for the cold one just like those that are timed."""
        self.poison()
        with self.watch.candidate(f"warming up the candidate on {self.scenario.name}"):
            self.bound.replay.run()
        self.baseline.replay.run()

    def time_candidate(self) -> float:
        """Milliseconds of one call from a cold cache."""
        self.poison()
        with self.watch.candidate(f"timing the candidate on {self.scenario.name}"):
            return self._timed(self.bound.replay)

    def time_baseline(self) -> float:
        """Milliseconds of one call from a cold cache."""
        self.watch.harness(f"timing the baseline on {self.scenario.name}")
        return self._timed(self.baseline.replay)

    def complaint(self, rng: random.Random) -> str:
        """What is wrong with the candidate's last timed call, on the inputs of both; "" where nothing is.

        All of o is held against the baseline's, and o and lse of some rows, which `rng` draws now, to the gate's rules.
        """
        if bool(self.baseline.replay.output.isnan().all()):  # it went first, and was poisoned before the candidate ran
            self.baseline.replay.run()
        size, distance, _ = self._apart()
        if not distance <= MAX_BASELINE_DIFFERENCE * size:
            return "o is not what the baseline gives on the same inputs"
        inputs, outputs = self.baseline_tensors, self.bound.tensors
        found = replace(inputs, o=outputs.o, lse=outputs.lse)
        case = Case(scenario=self.scenario.name, distribution=TIMED_DISTRIBUTION, stage="timed", input_seed=0)
        return judge_rows(found, self.scenario, [draw_block(self.scenario, rng)], case).reason

    def difference(self, input_seed: int) -> torch.Tensor:
        """Candidate less baseline on the last inputs, float32.

        Raises EnvironmentFault where that is too large: the candidate has passed, so the baseline computes another
        thing, and its time says nothing.
        """
        self.set_inputs(input_seed)  # the baseline's may be overwritten, if a candidate wrote far out of bounds
        self.baseline.replay.run()
        size, distance, difference = self._apart()
        if distance <= MAX_BASELINE_DIFFERENCE * size:
            return difference
        raise EnvironmentFault(
            f"the baseline's output ({self.baseline.setting}) on {self.scenario.name}, of norm {size:.3g}, lies "
            f"{distance:.3g} from a right one; expected at most {MAX_BASELINE_DIFFERENCE} of that: it is broken here, "
            "or does not suit the scenario"
        )

    def _apart(self) -> tuple[float, float, torch.Tensor]:
        """The norm of the baseline's output, that of the candidate's difference from it, and the difference.

        Not of the candidate's: what is far off or infinite would be its own measure.
        """
        baseline = self.baseline.replay.output.float()
        difference = self.bound.tensors.o.float() - baseline
        return float(torch.linalg.vector_norm(baseline)), float(torch.linalg.vector_norm(difference)), difference

    def _timed(self, replay: Replay) -> float:
        self.backend.flush_cache()  # right before the call, which a device queues while it is still at this
        milliseconds = replay.time_ms()
        if math.isfinite(milliseconds) and milliseconds > 0:
            return milliseconds
        raise EnvironmentFault(
            f"the clock gave {milliseconds} ms for one call on {self.scenario.name}; expected more than 0: it is too "
            "coarse for this scenario, or broken"
        )


def time_scenario(
    plan: ScenarioPlan, binaries: Mapping[Build, Path], backend: Backend, baseline: FastestSetting,
    settings: JudgeSettings, rng: random.Random, watch: Watch,
) -> TimedScenario:  # fmt: skip
    """A scenario's times and the verdict on a timed output that is chosen by lot.

    Raises CandidateFault where the candidate breaks, EnvironmentFault where the clock gives no positive time.
    """
    bound = bind_watched(plan, binaries, backend, watch)
    return time_pair(make_pair(plan.scenario, bound, backend, baseline, watch), settings, rng)


def time_pair(pair: Pair, settings: JudgeSettings, rng: random.Random) -> TimedScenario:
    """The same for two sides that are ready; they may be timed again and again. Raises as `time_scenario` does."""
    scenario, watch = pair.scenario, pair.watch
    pair.set_inputs(rng.getrandbits(SEED_BITS))
    for _ in range(settings.warmups):
        pair.set_inputs(rng.getrandbits(SEED_BITS))
        pair.warm_up()
    samples = _repeat(pair, settings, rng)
    check = samples.judged.check
    if check.passed and samples.astray:
        check = replace(check, passed=False, reason=samples.astray)
    watch.harness(f"timed {scenario.name}", check)
    return TimedScenario(timing=_summarise(pair, samples, settings, rng) if check.passed else None, check=check)


def make_pair(scenario: Scenario, bound: Bound, backend: Backend, baseline: FastestSetting, watch: Watch) -> Pair:
    """A bound candidate beside the baseline at its fastest, on inputs that are yet to be set."""
    tensors = Tensors(**{name: torch.empty_like(getattr(bound.tensors, name)) for name in ("q", "k", "v", "o", "lse")})
    draw_inputs(TIMED_DISTRIBUTION, 0, tensors.q, tensors.k, tensors.v)  # a capture may call it on what lies there
    fastest = baseline.call(tensors, scenario, watch)
    return Pair(
        scenario=scenario, bound=bound, baseline_tensors=tensors, baseline=fastest, backend=backend, watch=watch
    )


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The verdict on the output of one timed call, and where that is right, how far from it the baseline's lies."""

    check: ScenarioCheck
    difference_max: float = 0.0
    difference_rms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Samples:
    """Milliseconds call by call, and what was found of the outputs."""

    candidate_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...]
    judged: _Judged
    clocks: Mapping[str, float]  # right after the last pair, while the device still runs as it ran
    astray: str  # which timed call was wrong, and how; "" where none was


def _repeat(pair: Pair, settings: JudgeSettings, rng: random.Random) -> _Samples:
    """As many pairs of calls as it takes to know the speedup well enough, within what settings and time allow.

    One is judged as strictly as in the correctness stage. A lot decides which, for a place that can be foretold is the
    one where a candidate would take the trouble. Raises CandidateFault where any of them wrote outside its outputs.
    """
    lot, judged = rng.randrange(settings.least_repeats), list[_Judged]()
    candidate_ms: list[float] = []
    baseline_ms: list[float] = []
    turns = [(pair.time_candidate, candidate_ms), (pair.time_baseline, baseline_ms)]
    end, astray = time.monotonic() + settings.scenario_budget_s, ""
    for done in range(settings.repeats):
        if done >= settings.least_repeats and (
            time.monotonic() > end or precise_enough(candidate_ms, baseline_ms, settings.precision)
        ):
            break
        input_seed = rng.getrandbits(SEED_BITS)
        rng.shuffle(turns)
        for time_call, samples in turns:
            if samples is candidate_ms:  # a baseline that goes first has the last pair's: nothing of these is anywhere
                pair.set_inputs(input_seed)
            samples.append(time_call())
        # Every call, for one that need not be right would be the one that is skipped.
        if not astray and (complaint := pair.complaint(rng)):
            astray = f"timed call {done + 1}: {complaint}"
        if done == lot:
            judged.append(_judge(pair, input_seed))
    refuse_violations(pair.bound, pair.scenario)
    return _Samples(
        candidate_ms=tuple(candidate_ms), baseline_ms=tuple(baseline_ms), clocks=pair.backend.clocks(),
        judged=judged[0], astray=astray,
    )  # fmt: skip


def _judge(pair: Pair, input_seed: int) -> _Judged:
    """The verdict on the candidate's last call. A right one vouches for the baseline, which all are held against."""
    name = pair.scenario.name
    case = Case(scenario=name, distribution=TIMED_DISTRIBUTION, stage="timed", input_seed=input_seed)
    check = judge_output(pair.bound, pair.scenario, TIMED_DISTRIBUTION, case)
    if not check.passed:
        return _Judged(check=check)
    difference = pair.difference(input_seed)
    rms = float(difference.square().mean().sqrt())
    return _Judged(check=check, difference_max=float(difference.abs().max()), difference_rms=rms)


def _summarise(pair: Pair, samples: _Samples, settings: JudgeSettings, rng: random.Random) -> ScenarioTiming:
    candidate, baseline = (float(np.median(times)) for times in (samples.candidate_ms, samples.baseline_ms))
    interval = speedup_interval(
        samples.candidate_ms, samples.baseline_ms, settings.bootstrap_draws, np.random.default_rng(rng.getrandbits(64))
    )
    return ScenarioTiming(
        scenario=pair.scenario.name, candidate_ms=samples.candidate_ms, baseline_ms=samples.baseline_ms,
        candidate_median_ms=candidate, baseline_median_ms=baseline, speedup=baseline / candidate,
        speedup_low=interval.low, speedup_high=interval.high, tflops=pair.scenario.flops / (candidate * 1e9),
        baseline_difference_max=samples.judged.difference_max, baseline_difference_rms=samples.judged.difference_rms,
        baseline_setting=pair.baseline.setting, clocks=samples.clocks,
    )  # fmt: skip
