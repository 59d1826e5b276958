"""The check of an audit that reads clocks inside: whether the events see all of the time that the kernels are at work.

It stamps the PTX of the very same builds, so that the source stays as it is. Whatever goes wrong with that says nothing
about the candidate, and the check is skipped; unless it goes wrong without stamps too, and is the machine's.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from fitness.audit_record import AuditCheck, Finding
from fitness.clocked import ClockVerdict, judge_clocks
from fitness.evaluation import Evaluation
from fitness.evaluator import Compiled, Evaluator
from fitness.examination import Examination, Examined
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.plan import Build, ScenarioPlan, SuitePlan
from fitness.stamped_ptx import stamp
from fitness.suspicion import LEAST_MS

CLOCKS = "cycles inside against time outside"
SCENARIOS = 3  # those with the greatest speedups
_TOLD = 300  # characters of what went wrong


@runtime_checkable
class GivesPtx(Protocol):
    """A compiler that tells what it makes of a build on the way to its binary."""

    def ptx(self, source: str, build: Build) -> str:
        """The text. Raises CandidateFault or EnvironmentFault."""


class Examiner(Protocol):
    """A worker, as far as this check asks it."""

    def examine(self, job: Examination) -> Examined:
        """What came of the job. Raises EnvironmentFault."""


class ClockCheck:
    """Made for one compiled candidate. `rng_seed` decides the inputs."""

    def __init__(self, compiled: Compiled, evaluator: Evaluator, worker: Examiner, rng_seed: int) -> None:
        self._compiled = compiled
        self._evaluator = evaluator
        self._worker = worker
        self._rng_seed = rng_seed

    def check(self, evaluation: Evaluation) -> AuditCheck:
        """Failed where the kernels are at work for longer than the events say. Raises EnvironmentFault."""
        plans = self._fastest(evaluation)
        if not plans:
            detail = f"every scenario takes less than {LEAST_MS:g} ms"
            return AuditCheck(name=CLOCKS, finding=Finding.SKIPPED, detail=detail)
        plain = self._plain_calls(plans)
        if plain.fault:
            return AuditCheck(name=CLOCKS, finding=Finding.FAILED, detail=plain.fault)
        try:
            examined = self._stamped_calls(plans)
        except (CandidateFault, ValueError, OSError) as fault:
            return _unclocked(str(fault))
        except EnvironmentFault as fault:
            self._plain_calls(plans)
            return _unclocked(str(fault))
        return _unclocked(examined.fault) if examined.fault else _told(judge_clocks(examined.clocked, plain.scaled_ms))

    def _fastest(self, evaluation: Evaluation) -> tuple[ScenarioPlan, ...]:
        plans = {plan.scenario.name: plan for plan in self._compiled.plan.scenarios}
        long = [each for each in evaluation.timings if each.candidate_median_ms > LEAST_MS and each.scenario in plans]
        return tuple(plans[each.scenario] for each in sorted(long, key=lambda each: -each.speedup)[:SCENARIOS])

    def _plain_calls(self, plans: Sequence[ScenarioPlan]) -> Examined:
        binaries = {build.build: build.binary for build in self._compiled.builds}
        return self._worker.examine(
            Examination(
                plan=SuitePlan(scenarios=(), edges=tuple(plans)), binaries=binaries,
                settings=self._evaluator.settings, rng_seed=self._rng_seed, stack_bytes=self._compiled.stack_bytes,
            )
        )  # fmt: skip

    def _stamped_calls(self, plans: Sequence[ScenarioPlan]) -> Examined:
        with tempfile.TemporaryDirectory(prefix="evo-stamped-") as folder:
            builds = dict.fromkeys(plan.build for plan in plans)
            binaries = {build: Path(folder, f"{number}.ptx") for number, build in enumerate(builds)}
            for build, path in binaries.items():
                launched = {launch.kernel for plan in plans if plan.build == build for launch in plan.launches}
                path.write_text(self._stamped(build, launched), encoding="utf-8")
            return self._worker.examine(
                Examination(
                    plan=SuitePlan(scenarios=tuple(plans), edges=()), binaries=binaries,
                    settings=self._evaluator.settings, rng_seed=self._rng_seed, stamped=True,
                    stack_bytes=self._compiled.stack_bytes,
                )
            )  # fmt: skip

    def _stamped(self, build: Build, launched: set[str]) -> str:
        """The build's PTX with stamps. Raises ValueError, CandidateFault or EnvironmentFault where that is not had."""
        compiler = self._evaluator.compiler
        if not isinstance(compiler, GivesPtx):
            raise EnvironmentFault(f"{compiler.version} gives no PTX")
        stamped = stamp(compiler.ptx(self._compiled.source, build))
        if missing := launched - stamped.kernels:
            raise ValueError(f"no body of {', '.join(sorted(missing))} is found in the PTX")
        return stamped.text


def _unclocked(reason: str) -> AuditCheck:
    last = (reason.strip().splitlines() or ["for no known reason"])[-1]
    detail = f"the kernel cannot be clocked from inside: {last[:_TOLD]}"
    return AuditCheck(name=CLOCKS, finding=Finding.SKIPPED, detail=detail)


def _told(verdict: ClockVerdict) -> AuditCheck:
    if verdict.unseen:
        detail = f"the kernel is at work for longer than the events see, on {verdict.unseen}"
        return AuditCheck(name=CLOCKS, finding=Finding.FAILED, detail=detail)
    if not verdict.compared:
        return _unclocked(f"with stamps it is another kernel: {verdict.astray}")
    most = max(verdict.compared, key=lambda each: each.inside_ms / each.outside_ms)
    left_out = f"; with stamps it is another kernel elsewhere: {verdict.astray}" if verdict.astray else ""
    share = most.inside_ms / most.outside_ms
    detail = (
        f"on {len(verdict.compared)} scenarios at work for {share:.3f} of the time outside at most ({most.figures()})"
    )
    return AuditCheck(name=CLOCKS, finding=Finding.PASSED, detail=detail + left_out)
