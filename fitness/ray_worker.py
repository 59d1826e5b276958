"""A worker somewhere in a Ray cluster: an actor that holds one GPU, or one processor, and a killable process there.

Ray places the actors, moves the bytes and tells of lost nodes. It protects no node from a candidate: on the host
backend a candidate is native code with the rights of whoever started Ray there.
"""

import hashlib
import logging
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fitness.audit_record import AuditCheck
from fitness.examination import Examination, Examined
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.measure import Job, Measured
from fitness.plan import Build
from fitness.probe import Gpu, probe_machine
from fitness.sanitized import Sanitized
from fitness.sanitizer import find_sanitizer
from fitness.scenario import Suite
from fitness.worker import PRELOAD, BackendKind, BaselineFacts, WorkerSettings, open_worker

Found = TypeVar("Found")

_REMEDY = "start the cluster (`ray start`) or name it (pool.address)"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device that an actor holds; those of one pool are equal."""

    device: str  # the GPU's name, or the processor's
    gpu: tuple[tuple[int, int], int] | None  # capability and multiprocessors


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A request with the contents of its binaries, for a node that has other files."""

    request: Job | Examination
    contents: Mapping[Build, tuple[str, bytes]] = field(repr=False)  # the file's suffix, and what it holds

    @classmethod
    def of(cls, request: Job | Examination) -> "Shipped":
        """The request with what its binaries hold here."""
        contents = {build: (path.suffix, path.read_bytes()) for build, path in request.binaries.items()}
        return cls(request=replace(request, binaries={}), contents=contents)

    def unpacked(self, folder: Path) -> Job | Examination:
        """The request with its binaries in the folder."""
        binaries = {build: _written(folder, suffix, content) for build, (suffix, content) in self.contents.items()}
        return replace(self.request, binaries=binaries)


@dataclass(frozen=True, kw_only=True)
class ShippedCalls:
    """A sanitizer's job with the contents of its binaries, in the order of its plans."""

    job: Sanitized
    contents: tuple[tuple[str, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, job: Sanitized) -> "ShippedCalls":
        """The job with what its binaries hold here."""
        return cls(job=job, contents=tuple((path.suffix, path.read_bytes()) for _, path in job.plans))

    def unpacked(self, folder: Path) -> Sanitized:
        """The job with its binaries in the folder."""
        plans = zip(self.job.plans, self.contents, strict=True)
        written = tuple((plan, _written(folder, suffix, content)) for (plan, _), (suffix, content) in plans)
        return replace(self.job, plans=written)


class RayWorker:
    """Measures one candidate at a time on whichever node Ray has placed it; starts with the first request.

    After the loss of its node the next request has Ray place it anew, for which it waits `start_s` at most.
    """

    device_index = 0  # of the one GPU that its actor sees

    def __init__(self, settings: WorkerSettings, *, start_s: float) -> None:
        self._settings = settings
        self._start_s = start_s
        self._actor: Any = None
        self._starting = threading.Lock()

    def place(self) -> Place:
        """The device that it has. Raises EnvironmentFault where the cluster has none for it."""
        place = self._ask("place")
        if not isinstance(place, Place):
            raise TypeError(f"a Ray worker answered {place!r} when asked for its place")
        return place

    def baseline(self, suite: Suite) -> BaselineFacts:
        """See Worker."""
        facts = self._ask("baseline", suite)
        if not isinstance(facts, BaselineFacts):
            raise TypeError(f"a Ray worker answered {facts!r} when asked for its baseline")
        return facts

    def measure(self, job: Job) -> Measured:
        """See Worker; a lost node is the environment's fault."""
        measured = self._ask("measure", Shipped.of(job))
        if not isinstance(measured, Measured):
            raise TypeError(f"a Ray worker answered {measured!r} when asked to measure")
        return measured

    def examine(self, job: Examination) -> Examined:
        """See Worker."""
        examined = self._ask("examine", Shipped.of(job))
        if not isinstance(examined, Examined):
            raise TypeError(f"a Ray worker answered {examined!r} when asked to examine")
        return examined

    def check(self, tool: str, job: Sanitized) -> AuditCheck:
        """See Sanitizer: that of the node on which the worker's GPU is."""
        check = self._ask("check", tool, ShippedCalls.of(job))
        if not isinstance(check, AuditCheck):
            raise TypeError(f"a Ray worker answered {check!r} when asked to run {tool}")
        return check

    def abort(self) -> None:
        """From another thread: end the actor, so that the request under way fails."""
        self.close()

    def close(self) -> None:
        """End the actor; a later request starts another."""
        import ray

        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def _ask(self, method: str, *arguments: object) -> object:
        import ray
        from ray.exceptions import RayError

        try:
            reply = ray.get(getattr(self._running(), method).remote(*arguments))
        except RayError as error:
            self.close()
            raise DoubtfulFault(f"a worker of the Ray cluster was lost: {_first_line(error)}") from error
        if isinstance(reply, EnvironmentFault):
            raise reply
        return reply

    def _running(self) -> Any:  # noqa: ANN401  # Ray's handle, whose methods are made as they are called
        """The actor, placed and started. Raises EnvironmentFault where it takes too long, RayError where it fails."""
        import ray
        from ray.exceptions import GetTimeoutError

        with self._starting:
            if self._actor is None:
                gpus = 1 if self._settings.backend is BackendKind.CUDA else 0
                actor_class = ray.remote(_Measuring).options(num_cpus=1, num_gpus=gpus, max_restarts=0)
                self._actor = actor_class.remote(replace(self._settings, device_index=0))
                try:
                    ray.get(self._actor.started.remote(), timeout=self._start_s)
                except GetTimeoutError as error:
                    self.close()
                    what = "GPU" if gpus else "processor"
                    raise EnvironmentFault(
                        f"the Ray cluster had no {what} free for a worker within {self._start_s:g} s"
                    ) from error
            return self._actor


class _Measuring:
    """What the actor is: a worker, on the node where Ray has placed it."""

    def __init__(self, settings: WorkerSettings) -> None:
        start_fork_server(PRELOAD)
        self._on_gpu = settings.backend is BackendKind.CUDA
        self._worker = open_worker(settings)
        self._folder = tempfile.TemporaryDirectory(prefix="question-evo-")

    def started(self) -> bool:
        """Whether it runs."""
        return True

    def place(self) -> Place | EnvironmentFault:
        """The device here."""
        return _or_fault(self._look)

    def baseline(self, suite: Suite) -> BaselineFacts | EnvironmentFault:
        """See Worker."""
        return _or_fault(lambda: self._worker.baseline(suite))

    def measure(self, shipped: Shipped) -> Measured | EnvironmentFault:
        """See Worker."""
        job = shipped.unpacked(Path(self._folder.name))
        if not isinstance(job, Job):
            raise TypeError(f"{type(job).__name__} came; expected a Job")
        return _or_fault(lambda: self._worker.measure(job))

    def examine(self, shipped: Shipped) -> Examined | EnvironmentFault:
        """See Worker."""
        job = shipped.unpacked(Path(self._folder.name))
        if not isinstance(job, Examination):
            raise TypeError(f"{type(job).__name__} came; expected an Examination")
        return _or_fault(lambda: self._worker.examine(job))

    def check(self, tool: str, shipped: ShippedCalls) -> AuditCheck:
        """See Sanitizer."""
        return find_sanitizer().check(tool, shipped.unpacked(Path(self._folder.name)))

    def _look(self) -> Place:
        machine = probe_machine()
        if not self._on_gpu:
            return place_of(machine.processor, None)
        if not machine.gpus:
            raise EnvironmentFault(machine.gpu_trouble or "Ray placed a worker where no GPU was found")
        return place_of(machine.gpus[0].name, machine.gpus[0])


def place_of(device: str, gpu: Gpu | None) -> Place:
    """The place that this device makes."""
    return Place(device=device, gpu=None if gpu is None else (gpu.capability, gpu.sm_count))


@contextmanager
def in_cluster(address: str) -> Iterator[Mapping[str, float]]:
    """Within it this process is connected to a Ray cluster; gives the cluster's resources by name.

    Raises EnvironmentFault where Ray is not installed or no cluster is there. Ray takes over SIGTERM; it is given back.
    """
    try:
        import ray
    except ImportError as error:
        raise EnvironmentFault("pool=ray: Ray is not installed; pip install 'question-evo[ray]'") from error
    try:
        with _signals_kept():
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(f"pool=ray: no Ray cluster at {address} ({_first_line(error)}); {_REMEDY}") from error
    try:
        yield ray.cluster_resources()
    finally:
        with _signals_kept():
            ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _or_fault(request: Callable[[], Found]) -> Found | EnvironmentFault:
    """What came of a request, a fault as a value: raised in an actor it would come wrapped as Ray's own."""
    try:
        return request()
    except EnvironmentFault as fault:
        return fault


def _written(folder: Path, suffix: str, content: bytes) -> Path:
    path = folder / f"{hashlib.sha256(content).hexdigest()}{suffix}"
    if not path.exists():
        path.write_bytes(content)
    return path


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
