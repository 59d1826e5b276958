"""What an audit measures in the worker: bulk against single calls, and time against work at shapes not seen before."""

import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fitness.backends.backend import Backend, Replay
from fitness.baselines.fastest import FastestSetting
from fitness.clocked import ClockedScenario
from fitness.correctness import SEED_BITS, bind_watched, judge_output
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.gate import Case
from fitness.inputs import draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, ScenarioPlan, SuitePlan
from fitness.timing import TIMED_DISTRIBUTION, Pair, make_pair
from fitness.watch import Watch

BULK_MS = 10.0  # about as long as one bulk of calls takes
BULK_CALLS = (4, 100)  # at least and at most
ROUNDS = 7
SCALED_CALLS = 5


@dataclass(frozen=True, kw_only=True)
class Examination:
    """One compiled candidate to be examined; picklable. `rng_seed` decides every input."""

    plan: SuitePlan  # `scenarios` are timed in bulk, `edges` once at each size
    binaries: Mapping[Build, Path]
    settings: JudgeSettings
    rng_seed: int
    stack_bytes: int = 0  # of a thread, of the kernel with most
    stamped: bool = False  # the binaries are stamped PTX, and `scenarios` are timed by the clocks inside as well


@dataclass(frozen=True, kw_only=True)
class BulkTiming:
    """Medians in milliseconds a call, from a cache full of what its like left there both times."""

    scenario: str
    candidate_single_ms: float
    baseline_single_ms: float
    candidate_bulk_ms: float
    baseline_bulk_ms: float

    @property
    def agreement(self) -> float:
        """The speedup in bulk over that of single calls: 1 for an honest clock."""
        bulk = self.baseline_bulk_ms / self.candidate_bulk_ms
        return bulk / (self.baseline_single_ms / self.candidate_single_ms)


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was measured up to the candidate's first fault."""

    bulk: tuple[BulkTiming, ...] = ()
    scaled_ms: Mapping[str, float]  # scenario name to the median of single calls from a cold cache
    clocked: tuple[ClockedScenario, ...] = ()
    fault: str = ""


def examine(job: Examination, backend: Backend, baseline: FastestSetting, watch: Watch) -> Examined:
    """The measurements. Raises EnvironmentFault for a fault that is not the candidate's."""
    rng = random.Random(job.rng_seed)  # noqa: S311  # the secret is its seed
    bulk: list[BulkTiming] = []
    scaled: dict[str, float] = {}
    fault = ""
    try:
        for plan in job.plan.scenarios:
            pair, twin = (
                make_pair(plan.scenario, bind_watched(plan, job.binaries, backend, watch), backend, baseline, watch)
                for _ in range(2)
            )
            pair.set_inputs(rng.getrandbits(SEED_BITS))
            twin.set_inputs(rng.getrandbits(SEED_BITS))
            bulk.append(time_in_bulk(pair, twin, rng, watch))
        for plan in job.plan.edges:
            scaled[plan.scenario.name] = _time_scaled(plan, job, backend, rng, watch)
    except CandidateFault as found:
        fault = found.reason
    return Examined(bulk=tuple(bulk), scaled_ms=scaled, fault=fault)


def time_in_bulk(pair: Pair, twin: Pair, rng: random.Random, watch: Watch) -> BulkTiming:
    """Single calls and bulks of calls by turns. Raises CandidateFault where the last output of a bulk is wrong.

    Every timed call comes right after one of the twin, the same on other tensors. So a single call finds the cache as
    one in a bulk does, full of what its like left there, and yet its own outputs poisoned: what poisoning itself leaves
    there, a cache full of dirty lines, costs a kernel that waits for the memory more than one that does not.
    """
    for each in (pair, twin):
        each.warm_up()
    name, backend = pair.scenario.name, pair.backend
    candidate, baseline = (pair.bound.replay, twin.bound.replay), (pair.baseline.replay, twin.baseline.replay)
    rounds: list[tuple[float, float, float, float]] = []
    calls = 0
    for _ in range(ROUNDS):
        pair.poison()
        with watch.candidate(f"timing single calls on {name}"):
            candidate_ms = _single_ms(*candidate, backend)
        pair.poison()
        baseline_ms = _single_ms(*baseline, backend)
        calls = calls or _calls_for(min(candidate_ms, baseline_ms))
        pair.poison()
        with watch.candidate(f"timing {calls} calls in a row on {name}"):
            candidate_bulk_ms = _bulk_ms(*candidate, calls)
        if complaint := pair.complaint(rng):
            raise _wrong(f"after {calls} calls in a row on {name}: {complaint}")
        pair.poison()
        rounds.append((candidate_ms, baseline_ms, candidate_bulk_ms, _bulk_ms(*baseline, calls)))
    single, baseline_single, bulk, baseline_bulk = (statistics.median(times) for times in zip(*rounds, strict=True))
    return BulkTiming(
        scenario=name, candidate_single_ms=single, baseline_single_ms=baseline_single, candidate_bulk_ms=bulk,
        baseline_bulk_ms=baseline_bulk,
    )  # fmt: skip


def _single_ms(call: Replay, twin: Replay, backend: Backend) -> float:
    backend.flush_cache()
    twin.enqueue()
    return call.time_ms()


def _bulk_ms(call: Replay, twin: Replay, calls: int) -> float:
    """Milliseconds a call, of at least so many of both together."""
    turns = math.ceil(calls / 2)
    return call.bulk_ms(turns, behind=twin) / (2 * turns)


def _time_scaled(plan: ScenarioPlan, job: Examination, backend: Backend, rng: random.Random, watch: Watch) -> float:
    """Median milliseconds of a call from a cold cache, once its output is right at this size."""
    scenario, times = plan.scenario, []
    bound = bind_watched(plan, job.binaries, backend, watch)
    tensors, input_seed = bound.tensors, 0
    for _ in range(SCALED_CALLS):
        input_seed = rng.getrandbits(SEED_BITS)
        draw_inputs(TIMED_DISTRIBUTION, input_seed, tensors.q, tensors.k, tensors.v)
        bound.poison()
        with watch.candidate(f"timing the candidate on {scenario.name}"):
            backend.flush_cache()
            times.append(bound.replay.time_ms())
    case = Case(scenario=scenario.name, distribution=TIMED_DISTRIBUTION, stage="audit", input_seed=input_seed)
    check = judge_output(bound, scenario, TIMED_DISTRIBUTION, case)
    watch.harness(f"checked {scenario.name}", check)
    if not check.passed:
        raise _wrong(f"wrong output on {scenario.name}: {check.reason}")
    return statistics.median(times)


def _calls_for(call_ms: float) -> int:
    least, most = BULK_CALLS
    return most if call_ms <= 0 else max(least, min(most, math.ceil(BULK_MS / call_ms)))


def _wrong(reason: str) -> CandidateFault:
    return CandidateFault(Status.INCORRECT, reason)
