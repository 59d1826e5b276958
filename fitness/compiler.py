"""From a source to binaries: each build compiled in a process that can be killed, judged, and kept."""

import hashlib
import json
import queue
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from fitness import nvrtc
from fitness.build_cache import BuildCache
from fitness.build_limits import refuse_excess
from fitness.compile_log import advisories, clashing_flag, kernel_resources, readable_errors
from fitness.cubin import read_cubin
from fitness.evaluation import BuildReport, KernelResources, Status
from fitness.faults import CandidateFault, EnvironmentFault, invalid
from fitness.plan import Build, SuitePlan
from fitness.process import KillableProcess, ProcessDied, ProcessTimeout
from fitness.process_limits import ProcessLimits
from fitness.ptx import addresses_constants, only_read
from fitness.ptx_parameter_reads import unbounded_read
from fitness.ptx_parameters import writable_parameters

_START_S = 60.0
_JUDGEMENT = "6"  # part of a build's key: change it with what a build is, or is refused for


@dataclass(frozen=True, kw_only=True)
class CompiledBuild:
    """One build's binary on disk, and what the compiler said of it."""

    build: Build
    binary: Path
    report: BuildReport


class Compiler(Protocol):
    """What turns a source into the binaries that a backend loads."""

    @property
    def version(self) -> str:
        """Name and version, as precise as can be had: part of an evaluation's key."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Every option that shapes the result, but for the -D flags: part of an evaluation's key."""

    def compile(self, source: str, builds: Sequence[Build]) -> tuple[CompiledBuild, ...]:
        """The builds in their order. Raises CandidateFault (COMPILE_ERROR, INVALID) or EnvironmentFault."""

    def close(self) -> None:
        """End what it has running."""


class NvrtcCompiler:
    """NVRTC, several builds at a time, each within `timeout_s` seconds and `memory_bytes`.

    `arch` is "sm_90a" or the like; `include_dir` holds the contract's header. Needs no GPU, and `start_fork_server`
    to have run.
    """

    def __init__(
        self, *, arch: str, include_dir: Path, cache: BuildCache, processes: int, timeout_s: float, memory_bytes: int
    ) -> None:
        self._options = nvrtc.options_for(arch)
        self._cache = cache
        self._timeout_s = timeout_s
        header = _contract_header(include_dir)
        target = partial(nvrtc.serve, nvrtc.Setup(contract_header=header, options=self._options))
        limits = ProcessLimits(memory_bytes=memory_bytes)
        self._processes = tuple(KillableProcess(target, limits=limits) for _ in range(processes))
        self._idle: queue.SimpleQueue[KillableProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    @property
    def version(self) -> str:
        """As "NVRTC 13.0.88". Raises EnvironmentFault where NVRTC or CUDA's headers are missing."""
        return f"NVRTC {self._toolchain.version}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Every option but the -D flags."""
        return self._options

    def compile(self, source: str, builds: Sequence[Build]) -> tuple[CompiledBuild, ...]:
        """The builds in their order, from the cache where they are known; after a fault no further one is begun.

        Raises CandidateFault: COMPILE_ERROR with the compiler's own words, INVALID for a kernel that could keep state
        from call to call. Raises EnvironmentFault where NVRTC or the cache cannot be used.
        """
        _require_text(source)
        with ThreadPoolExecutor(len(self._processes)) as pool:
            futures = [pool.submit(self._build, source, build) for build in builds]
            try:
                wait_for(futures, return_when=FIRST_EXCEPTION)
            finally:
                for future in futures:
                    future.cancel()
        names = build_names(builds)
        _raise_first_fault(futures, names)
        results = zip(builds, names, (future.result() for future in futures), strict=True)
        return tuple(
            CompiledBuild(build=build, binary=binary, report=replace(report, name=name))
            for build, name, (binary, report) in results
        )

    def ptx(self, source: str, build: Build) -> str:
        """What NVRTC makes of a build on the way to its binary. Raises CandidateFault or EnvironmentFault."""
        product = self._run(nvrtc.Job(source=source, defines=build.flags, timeout_s=self._timeout_s))
        _judge(product, build)
        return product.ptx

    def close(self) -> None:
        """End the compiler's processes."""
        for process in self._processes:
            process.close()

    def _build(self, source: str, build: Build) -> tuple[Path, BuildReport]:
        key = self._key(source, build)
        known = self._cache.get(key)
        if known is not None:
            return known
        product = self._run(nvrtc.Job(source=source, defines=build.flags, timeout_s=self._timeout_s))
        try:
            report = _judge(product, build)
        except CandidateFault as fault:
            self._cache.keep_fault(key, fault)  # not so a timeout or a crash, which another machine may not see
            raise
        return self._cache.keep(key, product.cubin, report), report

    def _key(self, source: str, build: Build) -> str:
        parts = [_JUDGEMENT, source, self._toolchain.headers_sha256, self.version, *self._options, *build.flags]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @cached_property
    def _toolchain(self) -> nvrtc.Toolchain:
        answer = self._ask(nvrtc.Describe())
        if not isinstance(answer, nvrtc.Toolchain) or answer.problem:
            raise EnvironmentFault(
                f"NVRTC cannot be used: {getattr(answer, 'problem', answer)}; "
                "install the extra cuda13 (or cuda12): CuPy, nvidia-cuda-nvrtc, nvidia-cuda-runtime"
            )
        return answer

    def _run(self, job: nvrtc.Job) -> nvrtc.Product:
        answer = self._ask(job)
        if not isinstance(answer, nvrtc.Product):
            raise EnvironmentFault(f"NVRTC worked before, and now it does not: {answer}")
        return answer

    def _ask(self, request: object) -> object:
        process = self._idle.get()
        try:
            return ask_again_if_killed(process, request)
        except (ProcessTimeout, ProcessDied) as failure:
            raise _blamed(failure, self._timeout_s) from failure
        finally:
            self._idle.put(process)


def ask_again_if_killed(process: KillableProcess, request: object) -> object:
    """The process's answer, on its second life where the first was killed: want of memory may be another's doing.

    Raises ProcessTimeout, ProcessDied and EnvironmentFault, as `KillableProcess.request` does.
    """
    try:
        return process.request(request, deadline_s=_START_S)
    except ProcessDied as death:
        if death.cause != "SIGKILL":
            raise
    return process.request(request, deadline_s=_START_S)


def build_names(builds: Sequence[Build]) -> tuple[str, ...]:
    """What tells each build from the others: the defines in which they differ, or the element type of a single one."""
    described = [{"element": str(build.element_type), **dict(build.defines)} for build in builds]
    differing = [name for name in dict.fromkeys(chain(*described)) if len({d.get(name) for d in described}) > 1]
    shown = differing or ["element"]
    return tuple(" ".join(f"{name}={d[name]}" for name in shown if name in d) for d in described)


def require_kernels(plan: SuitePlan, compiled: Sequence[CompiledBuild]) -> None:
    """Nothing, where each build holds the kernels that its scenarios launch. Raises CandidateFault(COMPILE_ERROR)."""
    held = {each.build: [kernel.kernel for kernel in each.report.kernels] for each in compiled}
    for scenario in (*plan.scenarios, *plan.edges):
        for launch in scenario.launches:
            if launch.kernel not in held[scenario.build]:
                there = ", ".join(held[scenario.build])
                hint = ' (a mangled name lacks its extern "C")' if "_Z" in there else ""
                raise CandidateFault(
                    Status.COMPILE_ERROR, f"the manifest launches {launch.kernel}; the source has {there}{hint}"
                )


def _contract_header(include_dir: Path) -> str:
    try:
        return (include_dir / nvrtc.CONTRACT_HEADER).read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"the contract's header cannot be read: {error}; install the project again") from error


def _require_text(source: str) -> None:
    if "\0" in source or any("\ud800" <= character <= "\udfff" for character in source):
        raise invalid("the source holds a NUL or half of a surrogate pair; it must be plain Unicode text")


def _raise_first_fault(futures: Sequence["Future[tuple[Path, BuildReport]]"], names: Sequence[str]) -> None:
    """The environment's fault before any candidate's; a candidate's with the name of its build."""
    faults = [(future.exception(), name) for future, name in zip(futures, names, strict=True) if not future.cancelled()]
    for fault, _ in faults:
        if fault is not None and not isinstance(fault, CandidateFault):
            raise fault
    for fault, name in faults:
        if isinstance(fault, CandidateFault):
            where = f"in the build {name}: " if len(names) > 1 else ""
            raise CandidateFault(fault.status, where + fault.reason) from fault


def _blamed(failure: ProcessTimeout | ProcessDied, timeout_s: float) -> CandidateFault | EnvironmentFault:
    """The source's fault where it makes the compiler crash or run on, or out of memory; ours for anything else."""
    if failure.last_progress is None:
        return EnvironmentFault(f"NVRTC does not start: {failure}; {failure.output}")
    if isinstance(failure, ProcessTimeout):
        return CandidateFault(Status.COMPILE_ERROR, f"compiling took longer than {timeout_s:g} s")
    if failure.cause.startswith("SIG") or "MemoryError" in failure.output:
        return CandidateFault(Status.COMPILE_ERROR, f"the compiler crashed or ran out of memory ({failure.cause})")
    return EnvironmentFault(f"the compiler's process failed: {failure}; {failure.output}")


def _judge(product: nvrtc.Product, build: Build) -> BuildReport:
    """What the compiler said of a build that a backend may load. Raises CandidateFault."""
    if product.failure:
        if clash := clashing_flag(product.log, [name for name, _ in build.defines]):
            why = f"the headers use that name themselves, and -D{clash} changes it there; choose another name"
            raise CandidateFault(Status.COMPILE_ERROR, f"no knob and no define can be called {clash}: {why}")
        out_of_memory = "the compiler ran out of memory\n" if "OUT_OF_MEMORY" in product.failure else ""
        raise CandidateFault(Status.COMPILE_ERROR, out_of_memory + readable_errors(product.log))
    cubin = read_cubin(product.cubin)
    if not cubin.kernels:
        raise CandidateFault(Status.COMPILE_ERROR, "the source has no __global__ function")
    if cubin.imported:
        raise invalid(
            f"the source calls {', '.join(cubin.imported)}; on the device there is no heap, no printf and no launch, "
            "only params.workspace"
        )
    harmless = only_read(product.ptx)
    kept = ["a string" if name.startswith("$str") else name for name in cubin.writable if name not in harmless]
    if kept:
        raise invalid(
            f"the source keeps state in device memory, or could: {', '.join(kept)}. Nothing may be kept from call to "
            "call; use params.workspace for scratch space. Tables that are indexed at run time lie in writable memory "
            "too, unless declared __constant__"
        )
    if addresses_constants(product.ptx):
        raise invalid(
            "the source takes the address of __constant__ memory, through which it could be written; "
            "read constants by their names"
        )
    if astray := writable_parameters(product.ptx):
        raise invalid(
            "the source takes the address of its parameters, through which they could be written; the address of a "
            f"tensor map may go to the instructions that copy by it, in inlined functions, and nowhere else: {astray}"
        )
    if astray := unbounded_read(product.ptx):
        raise invalid(
            "the source reads its parameters at a place that is not fixed, or beside them; index them by constants, or "
            f"take them by value without __grid_constant__, so that the compiler copies them first: {astray}"
        )
    resources = _resources(product.log, cubin.kernels)
    refuse_excess(cubin, resources)
    return BuildReport(name="", kernels=resources, advisories=advisories(product.log))


def _resources(log: str, kernels: Sequence[str]) -> tuple[KernelResources, ...]:
    """What ptxas reports of the kernels that were built. Raises EnvironmentFault where it leaves one out.

    ptxas comes last in a log. What stands before it may be a warning's text, by which a source can say anything.
    """
    reported = {each.kernel: each for each in kernel_resources(log)}
    if missing := [name for name in kernels if name not in reported]:
        raise EnvironmentFault(
            f"NVRTC built {', '.join(missing)} and did not report on it: its log cannot be relied on; "
            "use another version of nvidia-cuda-nvrtc"
        )
    return tuple(each for name, each in reported.items() if name in kernels)
