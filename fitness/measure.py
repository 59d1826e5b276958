"""What the worker does for one candidate: every check, then every timing, with the timed outputs checked again."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fitness.backends.backend import Backend
from fitness.baselines.fastest import FastestSetting
from fitness.correctness import check_suite
from fitness.evaluation import ScenarioCheck, ScenarioTiming, Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, SuitePlan
from fitness.race import Bar, require_reach
from fitness.timing import time_scenario
from fitness.watch import Watch


@dataclass(frozen=True, kw_only=True)
class Job:
    """One compiled candidate to be measured; picklable. `rng_seed` decides every input, order and resampling."""

    plan: SuitePlan
    binaries: Mapping[Build, Path]
    settings: JudgeSettings
    rng_seed: int
    bar: Bar | None = None  # what it has to be able to reach, or timing it ends
    stack_bytes: int = 0  # of a thread, of the kernel with most


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How far a candidate came, with what was found on the way."""

    status: Status
    reason: str  # "" where it passed
    checks: tuple[ScenarioCheck, ...] = ()
    timings: tuple[ScenarioTiming, ...] = ()  # complete where PASSED, partial where STOPPED_EARLY, else empty
    check_s: float = 0.0
    time_s: float = 0.0

    @property
    def left_intact(self) -> bool:
        """Whether the process can be trusted with another candidate: it only ever gave outputs, right or wrong."""
        wrong_output = bool(self.checks) and not self.checks[-1].passed
        return self.status in (Status.PASSED, Status.STOPPED_EARLY) or wrong_output


def measure(job: Job, backend: Backend, baseline: FastestSetting, watch: Watch) -> Measured:
    """The measurements of a candidate, up to the first fault of its own. Raises EnvironmentFault for any other."""
    rng, settings = random.Random(job.rng_seed), job.settings  # noqa: S311  # the secret is its seed
    checks: list[ScenarioCheck] = []
    timings: list[ScenarioTiming] = []
    status, reason = Status.PASSED, ""
    start, checked = time.monotonic(), None
    try:
        for check in check_suite(job.plan, job.binaries, backend, settings, rng, watch):
            checks.append(check)
            _demand_right(check)
        checked = time.monotonic()
        for plan in job.plan.scenarios:
            timed = time_scenario(plan, job.binaries, backend, baseline, settings, rng, watch)
            checks.append(timed.check)
            _demand_right(timed.check)
            timings += [timed.timing] if timed.timing else []
            if job.bar is not None:
                require_reach(timings, [each.scenario.name for each in job.plan.scenarios], job.bar)
    except CandidateFault as fault:
        status, reason = fault.status, fault.reason
    end = time.monotonic()
    return Measured(
        status=status, reason=reason, checks=tuple(checks),
        timings=tuple(timings) if status in (Status.PASSED, Status.STOPPED_EARLY) else (),
        check_s=(checked or end) - start, time_s=end - checked if checked else 0.0,
    )  # fmt: skip


def ended_two_workers(faults: Sequence[EnvironmentFault]) -> Measured:
    """What is kept of a candidate in whose hands two workers broke, one of which at least started well again."""
    said = "; ".join(dict.fromkeys(map(str, faults)))
    reason = f"it ended two workers, and one of them at least was well again at once: {said}"
    return Measured(status=Status.RUNTIME_ERROR, reason=reason)


def _demand_right(check: ScenarioCheck) -> None:
    if not check.passed:
        after = " after it was timed" if check.stage == "timed" else ""
        raise CandidateFault(
            Status.INCORRECT, f"wrong output on {check.scenario}, {check.distribution} inputs{after}: {check.reason}"
        )
