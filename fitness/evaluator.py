"""From source text to Evaluation: the order of the stages, and what stands in the record when one of them fails."""

import copy
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Protocol

from fitness.compile_log import foretells_collapse
from fitness.compiler import CompiledBuild, Compiler, require_kernels
from fitness.correctness import SEED_BITS
from fitness.evaluation import Environment, Evaluation, ScenarioTiming, Status, always_deterministic
from fitness.evaluation_key import evaluation_key, source_sha256
from fitness.faults import CandidateFault, DoubtfulFault, invalid
from fitness.judge_settings import JudgeSettings
from fitness.manifest import CONTRACT, read_manifest
from fitness.measure import Job, Measured, ended_two_workers
from fitness.plan import SuitePlan
from fitness.planner import plan_suite
from fitness.race import Bar
from fitness.roof import Roof
from fitness.rules import check_rules
from fitness.scenario import Suite
from fitness.score import score_suite

logger = logging.getLogger(__name__)


class Measurer(Protocol):
    """What runs a compiled candidate; `Worker` is one."""

    def measure(self, job: Job) -> Measured:
        """The measurements, up to the candidate's first fault. Raises EnvironmentFault for any that is not its own."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The device that candidates are judged for."""

    names: frozenset[str]  # the manifest targets that run on it: portable, sm_80, sm_90a, sm_100a
    sm_count: int
    environment: Environment
    compiling_disturbs: bool  # the timing: true where both use the processor
    roof: Roof | None = None  # of this very device, where it was measured


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A candidate that can be measured."""

    source: str
    plan: SuitePlan
    builds: tuple[CompiledBuild, ...]
    compile_s: float

    @property
    def foretells_collapse(self) -> bool:
        """Whether the compiler said that it serialises the tensor cores' products: such builds run at half speed."""
        return any(foretells_collapse(advisory) for build in self.builds for advisory in build.report.advisories)

    @property
    def stack_bytes(self) -> int:
        """Of a thread, of the kernel with most."""
        return max((each.stack_bytes for build in self.builds for each in build.report.kernels), default=0)


class Evaluator:
    """Judges sources on one suite and one device; a bad candidate is a record, a bad environment an exception.

    `may_run(source)` says whether a source may be compiled and run here at all. `rng` draws what decides each
    candidate's inputs: the system's own by default, so that nobody knows them beforehand; a test passes its own.
    """

    def __init__(
        self, *, suite: Suite, target: Target, compiler: Compiler, worker: Measurer, settings: JudgeSettings,
        may_run: Callable[[str], bool], compile_threads: int = 2, rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        self._suite = suite
        self._target = target
        self._compiler = compiler
        self._worker = worker
        self._settings = settings
        self._may_run = may_run
        self._compile_threads = compile_threads
        self._rng = rng or random.SystemRandom()
        self._bar: Bar | None = None

    def against(self, bar: Bar | None) -> "Evaluator":
        """The same evaluator, ending the timing of a candidate once it can no longer reach the bar."""
        racing = copy.copy(self)
        racing._bar = bar
        return racing

    def on(self, suite: Suite, settings: JudgeSettings) -> "Evaluator":
        """The same evaluator for another suite, at other settings."""
        other = copy.copy(self)
        other._suite, other._settings = suite, settings
        return other

    def beside(self, worker: Measurer) -> "Evaluator":
        """The same evaluator with another worker on a device of the same model."""
        other = copy.copy(self)
        other._worker = worker
        return other

    @property
    def suite(self) -> Suite:
        """What candidates are judged on."""
        return self._suite

    @property
    def target(self) -> Target:
        """What candidates are judged for."""
        return self._target

    @property
    def compiler(self) -> Compiler:
        """What compiles them."""
        return self._compiler

    @property
    def worker(self) -> Measurer:
        """What runs them."""
        return self._worker

    @property
    def settings(self) -> JudgeSettings:
        """How they are judged."""
        return self._settings

    def key(self, source: str, *, stopped_early: bool = False) -> str:
        """The key that this source's evaluation has here; one that stopped early is good for this bar alone."""
        return evaluation_key(
            source=source, contract=CONTRACT, compiler=self._compiler.version, flags=self._compiler.flags,
            suite=self._suite, environment=self._target.environment, settings=self._settings,
            bar=self._bar.geomean if self._bar and stopped_early else None,
        )  # fmt: skip

    def evaluate(self, source: str) -> Evaluation:
        """The record of one candidate. Raises EnvironmentFault where something else than the candidate is at fault."""
        return self._measure_patiently(self.compile(source))

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """The records in the order of the sources; `on_done(index, evaluation)` hears of each as it is complete.

        Candidates compile in parallel and are measured one at a time; those of which the compiler foretells a collapse
        come last. Raises EnvironmentFault, and then drops what has not begun.
        """
        done: dict[int, Evaluation] = {}
        with ThreadPoolExecutor(self._compile_threads) as threads:
            futures = [threads.submit(self.compile, source) for source in sources]
            try:
                for index, compiled in self._in_measuring_order(futures):
                    done[index] = self._measure_patiently(compiled)
                    if on_done is not None:
                        on_done(index, done[index])
            finally:
                threads.shutdown(cancel_futures=True)
        return [done[index] for index in range(len(sources))]

    def compile(self, source: str) -> Evaluation | Compiled:
        """manifest → rules → plan → compile; the record of a candidate that does not come through.

        May be called from several threads. Raises EnvironmentFault.
        """
        start = time.monotonic()
        try:
            plan = self._plan(source)
            start = time.monotonic()
            builds = self._compiler.compile(source, plan.builds)
            if all(build.report.kernels for build in builds):  # g++ lists none, and links all that are launched
                require_kernels(plan, builds)
        except CandidateFault as fault:
            refused = Measured(status=fault.status, reason=fault.reason)
            return self._record(source, (), refused, compile_s=time.monotonic() - start)
        return Compiled(source=source, plan=plan, builds=builds, compile_s=time.monotonic() - start)

    def _in_measuring_order(
        self, futures: Sequence[Future[Evaluation | Compiled]]
    ) -> Iterator[tuple[int, Evaluation | Compiled]]:
        if self._target.compiling_disturbs:
            wait(futures)
        last: list[tuple[int, Compiled]] = []
        for index, future in enumerate(futures):
            compiled = future.result()
            if isinstance(compiled, Compiled) and compiled.foretells_collapse:
                last.append((index, compiled))
            else:
                yield index, compiled
        yield from last

    def _plan(self, source: str) -> SuitePlan:
        """manifest → rules → plan. Raises CandidateFault where the candidate fails one of them."""
        manifest = read_manifest(source)
        check_rules(source, manifest)
        device = self._target.environment.device
        if not self._target.names.intersection(manifest.targets):
            raise CandidateFault(
                Status.UNSUPPORTED,
                f"targets {', '.join(manifest.targets)}; {device} runs {', '.join(sorted(self._target.names))}",
            )
        if not self._may_run(source):
            raise invalid(
                "not a shipped seed with other knob values, and this backend would run it natively, with your rights; "
                "set backend.run_model_code=true to allow that"
            )
        return plan_suite(manifest, self._suite, self._target.sm_count)

    def measure(self, candidate: Evaluation | Compiled) -> Evaluation:
        """measure → score; what was refused before has its record already. Raises EnvironmentFault."""
        if isinstance(candidate, Evaluation):
            return candidate
        job = Job(
            plan=candidate.plan, binaries={build.build: build.binary for build in candidate.builds},
            settings=self._settings, rng_seed=self._rng.getrandbits(SEED_BITS), bar=self._bar,
            stack_bytes=candidate.stack_bytes,
        )  # fmt: skip
        return self.record(candidate, self._worker.measure(job))

    def _measure_patiently(self, candidate: Evaluation | Compiled) -> Evaluation:
        """As `measure`, and once more after a fault that may be the candidate's doing: it is not to end a run."""
        if isinstance(candidate, Evaluation):
            return candidate
        try:
            return self.measure(candidate)
        except DoubtfulFault as first:
            logger.warning("measuring once more, for the worker failed: %s", first)
            try:
                return self.measure(candidate)
            except DoubtfulFault as second:
                return self.record(candidate, ended_two_workers((first, second)))

    def record(self, candidate: Compiled, measured: Measured) -> Evaluation:
        """The record of a candidate of which this was measured."""
        return self._record(candidate.source, candidate.builds, measured, compile_s=candidate.compile_s)

    def _record(
        self, source: str, builds: Sequence[CompiledBuild], measured: Measured, *, compile_s: float
    ) -> Evaluation:
        score = None
        if measured.status is Status.PASSED and self._suite.scenarios:
            score = score_suite(measured.timings, self._suite, self._settings.bootstrap_draws)
        return Evaluation(
            key=self.key(source, stopped_early=measured.status is Status.STOPPED_EARLY),
            source_sha256=source_sha256(source), suite=self._suite.name,
            status=measured.status, reason=measured.reason, environment=self._target.environment,
            builds=tuple(build.report for build in builds), checks=measured.checks,
            timings=self._under_roof(measured.timings),
            geomean=score.geomean if score else None,
            geomean_low=score.interval.low if score else None, geomean_high=score.interval.high if score else None,
            compile_s=compile_s, check_s=measured.check_s, time_s=measured.time_s,
            deterministic=always_deterministic(measured.checks),
            timed=bool(self._suite.scenarios),
        )  # fmt: skip

    def _under_roof(self, timings: Sequence[ScenarioTiming]) -> tuple[ScenarioTiming, ...]:
        """The timings with what the device's roof allows, where that is known."""
        if self._target.roof is None:
            return tuple(timings)
        scenarios = {scenario.name: scenario for scenario in self._suite.scenarios}
        return tuple(
            replace(timing, roof_ms=self._target.roof.milliseconds(scenarios[timing.scenario])) for timing in timings
        )
