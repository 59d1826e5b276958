"""The killable process that measures candidates on one device, and whom a death in it is blamed on.

It protects the search from a candidate's crashes, endless loops and broken contexts. It does not protect the machine:
on the host backend a candidate is native code with this user's rights.
"""

import functools
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from typing import Self

from fitness.backends.backend import Backend
from fitness.backends.host import HostBackend
from fitness.baselines.fastest import FastestSetting
from fitness.baselines.selection import build_baseline, check_baseline
from fitness.clocking import clock
from fitness.device_errors import environments_error
from fitness.evaluation import ScenarioCheck, Status
from fitness.examination import Examination, Examined, examine
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.measure import Job, Measured, measure
from fitness.memory_faults import large_workspaces, out_of_memory, takes_much
from fitness.process import Done, KillableProcess, ProcessDied, ProcessFailure, ProcessTimeout, Progress
from fitness.process_limits import ProcessLimits
from fitness.roof import Roof, measure_roof
from fitness.scenario import Suite
from fitness.watch import Party, Step, Watch

PRELOAD = ("fitness.worker",)  # for start_fork_server: with this module comes torch, and a restart costs a fork

_START_S = 300.0  # to build the backend and import the baseline
_FROM_OUTSIDE = ", which comes from outside: from a person, a batch system, or the system itself when memory runs out"
_FAULT_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP")


class BackendKind(StrEnum):
    """Which backend a worker runs."""

    CUDA = "cuda"
    HOST = "host"


class WorkerBroken(DoubtfulFault):
    """Our own code in the worker failed in a way that nobody foresaw."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker builds inside its process, and what that may take."""

    backend: BackendKind
    baseline: str
    threads: int = 1  # of the processor: for the candidate on the host backend, and for the baseline beside it
    device_index: int = 0  # of the GPU, after CUDA_VISIBLE_DEVICES
    limits: ProcessLimits = field(default_factory=ProcessLimits)


@dataclass(frozen=True, kw_only=True)
class DeviceSide:
    """What lives in the worker's process."""

    backend: Backend
    baseline: FastestSetting


class Opening:
    """The request to open the device and no more."""


@dataclass(frozen=True, kw_only=True)
class BaselineFacts:
    """The baseline that the worker has, and the roof of its device."""

    name: str
    version: str
    roof: Roof


class Worker:
    """Measures one candidate at a time in a process of its own, which starts with the first request.

    `open_side` builds the backend and the baseline there. Where candidates share the process's memory, as on the host,
    each gets a fresh process; otherwise the process is replaced after a candidate that may have broken it.
    """

    def __init__(
        self, open_side: Callable[[], DeviceSide], *, limits: ProcessLimits, shares_memory: bool, device_index: int = 0
    ) -> None:
        self._large = large_workspaces(limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        self._process = KillableProcess(functools.partial(_serve, open_side, self._large), limits=limits)
        self._shares_memory = shares_memory
        self._device_index = device_index

    @property
    def device_index(self) -> int:
        """Of its GPU, after CUDA_VISIBLE_DEVICES; 0 on the host."""
        return self._device_index

    @property
    def pid(self) -> int | None:
        """The process that runs now; None where none does."""
        return self._process.pid

    def baseline(self, suite: Suite) -> BaselineFacts:
        """The baseline's name and version, and the device's roof.

        Raises BaselineUnavailableError where the baseline cannot do the suite.
        """
        try:
            facts = self._ask(suite, [])
        except ProcessFailure as failure:
            raise _environment_fault(failure, "preparing the device and the baseline") from failure
        if not isinstance(facts, BaselineFacts):
            raise TypeError(f"the worker answered {facts!r} when asked for its baseline")
        return facts

    def measure(self, job: Job) -> Measured:
        """The measurements, up to the candidate's first fault. Raises EnvironmentFault for any that is not its own.

        DoubtfulFault is raised where it may be.
        """
        steps: list[Step] = []
        try:
            measured = self._ask(job, steps)
        except ProcessFailure as failure:
            measured = self._blame(failure, steps, job)
        except WorkerBroken as broken:
            if self._shares_memory:
                reason = f"after it had run, its process was no longer of use: {str(broken).splitlines()[-1]}"
                return Measured(status=Status.RUNTIME_ERROR, reason=reason, checks=_checks_of(steps))
            raise
        if not isinstance(measured, Measured):
            raise TypeError(f"the worker answered {measured!r} when asked to measure")
        if self._shares_memory or not measured.left_intact:
            self._replace(measured.reason)
        return measured

    def examine(self, job: Examination) -> Examined:
        """What an audit measures, up to the candidate's first fault. Raises EnvironmentFault for any other."""
        steps: list[Step] = []
        try:
            examined = self._ask(job, steps)
        except ProcessFailure as failure:
            examined = Examined(scaled_ms={}, fault=self._blame(failure, steps, job).reason)
        if not isinstance(examined, Examined):
            raise TypeError(f"the worker answered {examined!r} when asked to examine")
        if self._shares_memory or examined.fault:
            self._replace(examined.fault)
        return examined

    def abort(self) -> None:
        """From another thread: kill the process, so that the request under way fails soon."""
        self._process.abort()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _replace(self, reason: str) -> None:
        """End the process; where candidates use a device, have a fresh one open it, for a verdict may hang on that.

        A GPU that falls off can give the error of a stray pointer, or none at all. Raises EnvironmentFault where the
        device cannot be opened.
        """
        self._process.close()
        if self._shares_memory:
            return
        try:
            self._ask(Opening(), [])
        except (ProcessFailure, EnvironmentFault) as trouble:
            why = str(trouble).splitlines()[0]
            raise EnvironmentFault(
                f"the device cannot be opened again ({why}), so this is not held against the candidate: {reason}"
            ) from trouble

    def _ask(self, request: Job | Examination | Suite | Opening, steps: list[Step]) -> object:
        """The reply; the steps on the way to it are added to `steps`, for they tell more where none comes."""

        def heard(step: object) -> None:
            if isinstance(step, Step):
                steps.append(step)

        reply = self._process.request(request, deadline_s=_START_S, on_progress=heard)
        if isinstance(reply, EnvironmentFault):
            self._process.close()
            if isinstance(reply, DoubtfulFault) and not _candidate_ran(steps):
                raise EnvironmentFault(str(reply)) from reply
            raise reply
        return reply

    def _blame(self, failure: ProcessFailure, steps: Sequence[Step], job: Job | Examination) -> Measured:
        """What a death says of the candidate. Raises EnvironmentFault where it says nothing."""
        activity = steps[-1].activity if steps else "preparing the device and the baseline"
        checks = _checks_of(steps)
        parties = [step.party for step in steps]
        if isinstance(failure, ProcessDied) and failure.cause == "SIGKILL" and not takes_much(job, self._large):
            raise _environment_fault(failure, activity, _FROM_OUTSIDE) from failure  # no kernel can send that signal
        broken = isinstance(failure, ProcessDied) and failure.cause in _FAULT_SIGNALS
        if parties and parties[-1] is Party.CANDIDATE:
            if isinstance(failure, ProcessTimeout):
                reason = f"{activity} took longer than {job.settings.call_timeout_s:g} s"
                return Measured(status=Status.TIMEOUT, reason=reason, checks=checks)
            hint = " (a read or write outside the tensors?)" if broken else ""
            return Measured(status=Status.RUNTIME_ERROR, reason=f"{failure} while {activity}{hint}", checks=checks)
        if self._shares_memory and isinstance(failure, ProcessDied) and _candidate_ran(steps):
            reason = f"{failure} {activity}: the candidate had run in it (a write outside the tensors?)"
            return Measured(status=Status.RUNTIME_ERROR, reason=reason, checks=checks)
        fault = _environment_fault(failure, activity)
        raise (DoubtfulFault(str(fault)) if _candidate_ran(steps) else fault) from failure


def _candidate_ran(steps: Sequence[Step]) -> bool:
    return any(step.party is Party.CANDIDATE for step in steps)


def _checks_of(steps: Sequence[Step]) -> tuple[ScenarioCheck, ...]:
    return tuple(step.check for step in steps if step.check)


def open_side(settings: WorkerSettings) -> DeviceSide:
    """The backend and the baseline of the settings. Raises EnvironmentFault where one of them is not to be had."""
    backend = _build_backend(settings)
    return DeviceSide(backend=backend, baseline=FastestSetting(build_baseline(settings.baseline), backend))


def open_worker(settings: WorkerSettings) -> Worker:
    """A worker on the device of the settings; nothing starts before its first request."""
    shares_memory = settings.backend is BackendKind.HOST
    return Worker(
        functools.partial(open_side, settings),
        limits=settings.limits,
        shares_memory=shares_memory,
        device_index=settings.device_index,
    )


def _build_backend(settings: WorkerSettings) -> Backend:
    match settings.backend:
        case BackendKind.HOST:
            return HostBackend(threads=settings.threads)
        case BackendKind.CUDA:
            from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

            return CudaBackend(device_index=settings.device_index)


def _environment_fault(failure: ProcessFailure, activity: str, hint: str = "") -> EnvironmentFault:
    output = failure.output or "it wrote nothing"
    return EnvironmentFault(f"the worker failed, and not by the candidate, {activity}: {failure}{hint}; {output}")


def _serve(open_side: Callable[[], DeviceSide], large: int, connection: Connection) -> None:
    """Answer requests in the child until the parent closes its end; `large` as `out_of_memory` takes it."""
    side: DeviceSide | None = None
    while True:
        request = connection.recv()
        reply: object
        try:
            side = side or open_side()
            reply = _answer(request, side, connection)
        except EnvironmentFault as fault:
            reply = fault
        except Exception as error:  # noqa: BLE001  # the worker's edge: whatever broke, the parent must hear of it
            said = " ".join(str(error).split())[:300]
            head = f"the worker broke, and not by the candidate: {type(error).__name__}: {said}"
            broken = WorkerBroken(f"{head}\n{traceback.format_exc()}")
            reply = out_of_memory(error, request, large) or environments_error(error) or broken
        connection.send(Done(reply))


def _answer(request: Job | Examination | Suite | Opening, side: DeviceSide, connection: Connection) -> object:
    if isinstance(request, Opening):
        return request
    if isinstance(request, Suite):
        baseline = side.baseline.baseline
        check_baseline(baseline, request)
        roof = measure_roof(side.backend.device)
        return BaselineFacts(name=baseline.name, version=baseline.version, roof=roof)
    watch = Watch(lambda step, deadline_s: connection.send(Progress(step, deadline_s)), request.settings)
    if isinstance(request, Examination) and request.stamped:
        return clock(request, side.backend, watch)
    if isinstance(request, Examination):
        return examine(request, side.backend, side.baseline, watch)
    return measure(request, side.backend, side.baseline, watch)
