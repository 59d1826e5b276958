"""The audit of a win that is too good to be believed: the same kernel, asked in ways that it was not selected by."""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from fitness.audit_record import AuditCheck, Finding
from fitness.clock_check import CLOCKS, ClockCheck
from fitness.correctness import SEED_BITS
from fitness.evaluation import Evaluation, Status
from fitness.evaluator import Compiled, Evaluator
from fitness.examination import Examination, Examined
from fitness.faults import BaselineUnavailableError
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, ScenarioPlan, SuitePlan
from fitness.roof import SLACK
from fitness.sanitized import Sanitized
from fitness.sanitizer import TOOLS
from fitness.scenario import Scenario, Suite
from fitness.suspicion import LEAST_MS
from fitness.worker import BaselineFacts

REPRODUCED = 0.05  # the geometric mean may differ by this share when it is measured again
AGREEMENT = 0.05  # so may the speedup in bulk from that of single calls, on scenarios over LEAST_MS
SCALES = (1, 2, 4)  # times the batch
SCALED_SCENARIOS = 3  # those with the greatest speedups
MAX_SCALED_BYTES = 8 << 30
_TWIN_BYTES = MAX_SCALED_BYTES // 2  # of a scenario that is timed in bulk: there are two copies of it then
SMALL_FLOPS = 10**9  # a sanitizer's tools make a kernel up to a hundred times slower
_BULK, _SCALING = "bulk against single calls", "time against work"
_SHRINKS = 0.9  # a call with more work may take this share of the time of one with less: below is no noise
_TOO_LARGE = f"at {SCALES[-1]} times its batch every scenario moves more than {MAX_SCALED_BYTES >> 30} GiB"
_NO_GPU = "there is no GPU here"


@runtime_checkable
class AuditWorker(Protocol):
    """What examines a compiled candidate; `Worker` is one."""

    @property
    def device_index(self) -> int:
        """Of its GPU, for the tools that run beside it."""

    def baseline(self, suite: Suite) -> BaselineFacts:
        """Raises BaselineUnavailableError where the baseline cannot do the suite."""

    def examine(self, job: Examination) -> Examined:
        """Bulk and scaled timings. Raises EnvironmentFault for a fault that is not the candidate's."""


@runtime_checkable
class SanitizesKernels(Protocol):
    """What runs compute-sanitizer beside the worker's GPU: a `Sanitizer`, or a worker on another machine."""

    def check(self, tool: str, job: Sanitized) -> AuditCheck:
        """What a tool says of the job's kernels. Raises EnvironmentFault where that machine is lost."""


@dataclass(frozen=True, kw_only=True)
class FullSuite:
    """What a champion is held to besides."""

    suite: Suite
    settings: JudgeSettings


class Auditor:
    """Audits candidates of one evaluator. Without a GPU new inputs are all that there is: the rest is skipped.

    `worker` is the evaluator's own. `rng` draws what decides the inputs: the system's own by default.
    """

    def __init__(
        self, evaluator: Evaluator, worker: AuditWorker, *, on_gpu: bool, sanitizer: SanitizesKernels,
        device_index: int = 0, full: FullSuite | None = None, rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        self._evaluator = evaluator
        self._worker = worker
        self._on_gpu = on_gpu
        self._sanitizer = sanitizer
        self._device_index = device_index
        self._full = full
        self._rng = rng or random.SystemRandom()

    def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
        """The checks up to and with the first that fails. Raises EnvironmentFault for what is not the candidate's."""
        return _up_to_failure(self._checks(source, evaluation))

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        """The full suite, which a run's best is held to besides. Raises EnvironmentFault."""
        return () if self._full is None else (self._full_suite(source, self._full),)

    def _checks(self, source: str, evaluation: Evaluation) -> Iterator[AuditCheck]:
        yield self._new_inputs(source, evaluation)
        if not self._on_gpu:
            for name in (_BULK, _SCALING, CLOCKS, *TOOLS):
                yield AuditCheck(name=name, finding=Finding.NOT_DUE, detail=_NO_GPU)
            return
        compiled = self._evaluator.compile(source)
        if not isinstance(compiled, Compiled):
            yield AuditCheck(name="compile", finding=Finding.FAILED, detail=compiled.reason)
            return
        yield self._bulk(compiled)
        yield self._scaling(source, evaluation)
        clocks = ClockCheck(compiled, self._evaluator, self._worker, self._rng.getrandbits(SEED_BITS))
        yield clocks.check(evaluation)
        job = self._sanitized(source, compiled)
        for tool in TOOLS:
            yield self._sanitizer.check(tool, job)

    def _new_inputs(self, source: str, evaluation: Evaluation) -> AuditCheck:
        """The whole evaluation on other inputs; where the clock is steady, as fast as before in one of two tries."""
        name, geomeans = "new inputs", list[str]()
        for _ in range(2):
            again = self._evaluator.evaluate(source)
            if again.geomean is None or evaluation.geomean is None:
                return AuditCheck(name=name, finding=Finding.FAILED, detail=f"{again.status}: {again.reason}")
            geomeans.append(f"{again.geomean:.4f}")
            detail = f"right again; {' and '.join(geomeans)} × the baseline, {evaluation.geomean:.4f} × before"
            if not self._on_gpu or abs(again.geomean / evaluation.geomean - 1) <= REPRODUCED:
                return AuditCheck(name=name, finding=Finding.PASSED, detail=detail)
        return AuditCheck(name=name, finding=Finding.FAILED, detail=detail)

    def _bulk(self, compiled: Compiled) -> AuditCheck:
        """Single calls against many in a row; what disagrees is measured a second time before it counts."""
        name = _BULK
        plans, timed = tuple(filter(_has_room_for_a_twin, compiled.plan.scenarios)), 0
        for _ in range(2):
            examined = self._examine(compiled, SuitePlan(scenarios=plans, edges=()))
            if examined.fault:
                return AuditCheck(name=name, finding=Finding.FAILED, detail=examined.fault)
            long = [each for each in examined.bulk if _long_enough(each.candidate_single_ms, each.baseline_single_ms)]
            timed = timed or len(long)
            astray = {each.scenario: each for each in long if abs(each.agreement - 1) > AGREEMENT}
            plans = tuple(plan for plan in plans if plan.scenario.name in astray)
            if not plans:
                detail = f"the speedups of {timed} scenarios agree within {AGREEMENT:.0%}"
                if timed < len(compiled.plan.scenarios):
                    detail += f"; the others take less than {LEAST_MS:g} ms, or move more than {_TWIN_BYTES >> 30} GiB"
                return AuditCheck(name=name, finding=Finding.PASSED if timed else Finding.SKIPPED, detail=detail)
        worst = max(astray.values(), key=lambda each: abs(math.log(each.agreement)))
        detail = (
            f"on {worst.scenario} the speedup in bulk is {worst.agreement:.3f} times that of single calls (a call "
            f"alone and in bulk: {worst.candidate_single_ms:.4f} and {worst.candidate_bulk_ms:.4f} ms, the baseline's "
            f"{worst.baseline_single_ms:.4f} and {worst.baseline_bulk_ms:.4f} ms)"
        )
        return AuditCheck(name=name, finding=Finding.FAILED, detail=detail)

    def _scaling(self, source: str, evaluation: Evaluation) -> AuditCheck:
        """Right at other batches, never above the roof there, and no faster for more work."""
        name = _SCALING
        families = scaled(self._evaluator.suite, evaluation)
        if not families:
            return AuditCheck(name=name, finding=Finding.SKIPPED, detail=_TOO_LARGE)
        shapes = tuple(dict.fromkeys(each for family in families for each in family))
        suite = Suite(name="scaled", scenarios=shapes)
        compiled = self._evaluator.on(suite, self._evaluator.settings).compile(source)
        if not isinstance(compiled, Compiled):
            finding = Finding.NOT_DUE if compiled.status is Status.UNSUPPORTED else Finding.SKIPPED
            return AuditCheck(name=name, finding=finding, detail=f"{compiled.status}: {compiled.reason}")
        examined = self._examine(compiled, SuitePlan(scenarios=(), edges=compiled.plan.scenarios))
        trouble = examined.fault or self._odd_growth(families, examined)
        if trouble:
            return AuditCheck(name=name, finding=Finding.FAILED, detail=trouble)
        sizes = ", ".join(map(str, SCALES))
        detail = f"{len(families)} scenarios at {sizes} times their batch: right, and the time grows"
        return AuditCheck(name=name, finding=Finding.PASSED, detail=detail)

    def _odd_growth(self, families: Sequence[Sequence[Scenario]], examined: Examined) -> str:
        roof = self._evaluator.target.roof
        for family in families:
            times = [examined.scaled_ms[each.name] for each in family]
            for scenario, time_ms in zip(family, times, strict=True):
                if roof and roof.milliseconds(scenario) > SLACK * time_ms:
                    share = roof.milliseconds(scenario) / time_ms
                    return f"{scenario.name} in {time_ms:.4f} ms, {share:.2f} times the roof of the device"
            if times[-1] > LEAST_MS and times[-1] < _SHRINKS * times[0]:
                return f"{family[-1].name} takes {times[-1]:.4f} ms, and {family[0].name} {times[0]:.4f} ms"
        return ""

    def _full_suite(self, source: str, full: FullSuite) -> AuditCheck:
        try:
            self._worker.baseline(full.suite)
        except BaselineUnavailableError as error:
            return AuditCheck(name=full.suite.name, finding=Finding.SKIPPED, detail=str(error))
        found = self._evaluator.on(full.suite, full.settings).evaluate(source)
        if found.status is Status.PASSED:
            geomean = f", {found.geomean:.4f} × {found.environment.baseline}" if found.geomean else ""
            detail = f"right on {len(full.suite.scenarios)} scenarios{geomean}"
            return AuditCheck(name=full.suite.name, finding=Finding.PASSED, detail=detail)
        outside = found.status in (Status.UNSUPPORTED, Status.INVALID, Status.COMPILE_ERROR)  # it does not claim these
        finding = Finding.NOT_DUE if outside else Finding.FAILED
        return AuditCheck(name=full.suite.name, finding=finding, detail=f"{found.status}: {found.reason}")

    def _examine(self, compiled: Compiled, plan: SuitePlan) -> Examined:
        return self._worker.examine(
            Examination(
                plan=plan, binaries={build.build: build.binary for build in compiled.builds},
                settings=self._evaluator.settings, rng_seed=self._rng.getrandbits(SEED_BITS),
                stack_bytes=compiled.stack_bytes,
            )
        )  # fmt: skip

    def _sanitized(self, source: str, compiled: Compiled) -> Sanitized:
        """A small scenario of each build, cut down to one batch entry and one kv head where that makes it small."""
        plans = (*compiled.plan.edges, *compiled.plan.scenarios)
        by_build: dict[Build, list[Scenario]] = {}
        for plan in plans:
            by_build.setdefault(plan.build, []).append(plan.scenario)
        chosen = [_busiest(map(_cut_down, scenarios)) for scenarios in by_build.values()]
        suite = Suite(name="small", scenarios=tuple(dict.fromkeys(chosen)))
        small = self._evaluator.on(suite, self._evaluator.settings).compile(source)
        if isinstance(small, Compiled):
            compiled, plans = small, small.plan.scenarios
        else:  # what is cut down lies outside of what it supports
            plans = tuple(plan for plan in plans if plan.scenario == _busiest(by_build[plan.build]))
        binaries = {build.build: build.binary for build in compiled.builds}
        pairs = tuple((plan, binaries[plan.build]) for plan in plans)
        return Sanitized(plans=pairs, device_index=self._device_index, rng_seed=self._rng.getrandbits(SEED_BITS))


def scaled(suite: Suite, evaluation: Evaluation) -> list[tuple[Scenario, ...]]:
    """The scenarios with the greatest speedups, each at growing batches, as far as its tensors stay bounded."""
    fastest = sorted(evaluation.timings, key=lambda timing: -timing.speedup)
    scenarios = {each.name: each for each in suite.scenarios}
    chosen = [scenarios[timing.scenario] for timing in fastest if timing.scenario in scenarios]
    small = [each for each in chosen if each.bytes_moved * SCALES[-1] <= MAX_SCALED_BYTES]
    return [tuple(replace(each, batch=each.batch * scale) for scale in SCALES) for each in small[:SCALED_SCENARIOS]]


def _busiest(scenarios: Iterable[Scenario]) -> Scenario:
    """That with the most work within SMALL_FLOPS, or with the least: of one query no two threads can be in a race."""
    by_work = sorted(scenarios, key=lambda scenario: scenario.flops)
    return next((each for each in reversed(by_work) if each.flops <= SMALL_FLOPS), by_work[0])


def _cut_down(scenario: Scenario) -> Scenario:
    if scenario.flops <= SMALL_FLOPS:
        return scenario
    return replace(scenario, batch=1, heads=scenario.heads // scenario.kv_heads, kv_heads=1)


def _has_room_for_a_twin(plan: ScenarioPlan) -> bool:
    return plan.scenario.bytes_moved <= _TWIN_BYTES


def _long_enough(*milliseconds: float) -> bool:
    return min(milliseconds) > LEAST_MS


def _up_to_failure(checks: Iterator[AuditCheck]) -> tuple[AuditCheck, ...]:
    made: list[AuditCheck] = []
    for check in checks:
        made.append(check)
        if check.finding is Finding.FAILED:
            break
    return tuple(made)
