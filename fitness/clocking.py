"""What an audit measures of a stamped kernel in the worker: each call by the device's own clocks and by the events."""

import random
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fitness.backends.backend import Backend, Bound
from fitness.clocked import ClockedCall, ClockedScenario, read_span
from fitness.correctness import SEED_BITS, bind_watched, judge_output
from fitness.evaluation import Status
from fitness.examination import Examination, Examined
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.gate import Case
from fitness.inputs import draw_inputs
from fitness.plan import ScenarioPlan
from fitness.timing import TIMED_DISTRIBUTION
from fitness.watch import Watch

CALLS = 7


class Stamps(Protocol):
    """The stamps that a bound kernel leaves."""

    @property
    def peak_mhz(self) -> float:
        """The greatest rate of the device's SMs; 0 where nothing tells."""

    def clear(self) -> None:
        """As before any call."""

    def read(self) -> npt.NDArray[np.int64]:
        """Those of the last call, `[SMs, 4]`."""


@runtime_checkable
class LeavesStamps(Protocol):
    """A bound kernel whose PTX was stamped."""

    def stamps(self) -> Stamps:
        """Its stamps. Raises CandidateFault where it has none."""


def clock(job: Examination, backend: Backend, watch: Watch) -> Examined:
    """The plan's `scenarios` by both clocks, up to the first fault. Raises EnvironmentFault without stamps to read."""
    rng = random.Random(job.rng_seed)  # noqa: S311  # the secret is its seed
    clocked: list[ClockedScenario] = []
    fault = ""
    try:
        for plan in job.plan.scenarios:
            bound = bind_watched(plan, job.binaries, backend, watch)
            clocked.append(_clock_scenario(plan, bound, backend, rng, watch))  # a fault may come between
    except CandidateFault as found:
        fault = found.reason
    return Examined(scaled_ms={}, clocked=tuple(clocked), fault=fault)


def _clock_scenario(
    plan: ScenarioPlan, bound: Bound, backend: Backend, rng: random.Random, watch: Watch
) -> ClockedScenario:
    """Calls on one set of inputs from a cold cache, and right: a wrong kernel is not the one that was stamped."""
    if not isinstance(bound, LeavesStamps):
        raise EnvironmentFault("this backend reads no stamps")
    stamps, name, input_seed = bound.stamps(), plan.scenario.name, rng.getrandbits(SEED_BITS)
    tensors = bound.tensors
    draw_inputs(TIMED_DISTRIBUTION, input_seed, tensors.q, tensors.k, tensors.v)
    calls: list[ClockedCall] = []
    for _ in range(CALLS + 1):
        stamps.clear()
        bound.poison()
        with watch.candidate(f"timing the stamped candidate on {name}"):
            backend.flush_cache()
            outside_ms = bound.replay.time_ms()
        sm_mhz = backend.clocks().get("sm_mhz", 0.0)
        span = read_span(stamps.read())
        if span is None:
            raise CandidateFault(Status.RUNTIME_ERROR, f"no warp left a stamp on {name}")
        calls.append(ClockedCall(span=span, outside_ms=outside_ms, sm_mhz=sm_mhz))
    case = Case(scenario=name, distribution=TIMED_DISTRIBUTION, stage="audit", input_seed=input_seed)
    check = judge_output(bound, plan.scenario, TIMED_DISTRIBUTION, case)
    watch.harness(f"checked {name}", check)
    if not check.passed:
        raise CandidateFault(Status.INCORRECT, f"wrong output on {name}: {check.reason}")
    timed = tuple(calls[1:])  # the first warmed up
    return ClockedScenario(scenario=name, launches=len(plan.launches), peak_mhz=stamps.peak_mhz, calls=timed)
