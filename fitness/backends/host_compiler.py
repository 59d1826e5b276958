"""g++ for the host backend: a portable candidate becomes a shared object with an entry for each of its kernels."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fitness.backends.bounded_log import BoundedLog
from fitness.backends.host_log import host_errors
from fitness.backends.host_names import demangled
from fitness.backends.host_source import CANDIDATE_NAME, DEFINES_NAME, RUNTIME, host_source
from fitness.build_cache import BuildCache
from fitness.child_environment import listed_environment
from fitness.compiler import CompiledBuild, build_names
from fitness.evaluation import BuildReport, Status
from fitness.faults import CandidateFault, EnvironmentFault, invalid
from fitness.manifest import read_manifest
from fitness.plan import Build

# As nvcc: multiplications and additions are contracted, maths sets no errno and traps nothing, and memory may be read
# as another type than it was written as. Beyond that no liberties: -ffast-math would lose NaN and infinity.
_FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-gnu-unique", "-fvisibility=hidden",
    "-fstack-clash-protection", "-shared", "-fPIC", "-Wl,-z,defs",
)  # fmt: skip
_DIAGNOSTICS = ("-w", "-fdiagnostics-color=never", "-ftrack-macro-expansion=0", "-fmax-errors=20")
# Set before g++ starts anything; where one is refused, a stricter one holds already. Files count in 512 bytes.
_LIMITED = '{ ulimit -v "$1"; ulimit -t "$2"; ulimit -f "$3"; ulimit -c 0; } 2> /dev/null; shift 3; exec "$@"'
_FILE_BYTES = 64 << 20  # of the assembly text, the object and the binary; those of an honest kernel have a few MiB
_LOG_BYTES = 1 << 20  # of what g++ says: the name of a nested type alone may take gigabytes
_MOST_NAMES = 20  # in one refusal
_KILLED = "Killed signal terminated program"  # as g++ says of cc1plus, as or ld; killed itself, it says nothing
_JUDGEMENT = "4"  # part of a build's key: change it with what is refused, and kept verdicts count no more
# Ours and C's, as the binary spells them: a candidate's own, whatever it calls them, stand in its unnamed namespace.
_RUNTIME_DATA = re.compile(
    r"_ZN12_GLOBAL__N_13evoL(?:7runtime|14dynamic_shared)E|completed\.\d+|__dso_handle|__TMC_END__"
)
_WRITABLE = re.compile(r"\.(?:data|bss|tdata)(?!\.rel\.ro)(?:\.|$)")
# What a binary may ask of the C library: what our runtime needs (the rules keep candidates from naming it), what g++
# makes of copies and comparisons, and mathematics. Anything else could keep state, or reach beyond the call.
_LIBRARY = re.compile(
    r"__tls_get_addr|dl_iterate_phdr|mmap|mprotect|munmap|madvise|snprintf|sysconf|(?:get|make|swap)context"
    r"|mem(?:set|cpy|move|cmp)|__stack_chk_fail|__cxa_finalize|__gmon_start__|_ITM_\w+"
    r"|(?:exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sincos|asin|acos|atan|atan2|sinh|cosh|tanh|asinh"
    r"|acosh|atanh|sqrt|cbrt|hypot|fma|fmod|remainder|erf|erfc|floor|ceil|l?l?round|l?l?rint|nearbyint|trunc|fabs|fmax"
    r"|fmin|fdim|copysign|ldexp|scalbn|frexp|modf|logb|ilogb|nextafter)f?"
)
# In a line of a tool's own: those that name a file may quote the candidate, whose text might say anything. That of an
# assertion may even begin a line, so that an error of the candidate's own outweighs it.
_OUR_TROUBLE = re.compile(
    r"^(?:g\+\+|cc1plus|as|ld|collect2|/bin/sh|sh|[^:\s]*/(?:g\+\+|cc1plus|as|ld|collect2)[^:\s]*): (?:fatal )?.*"
    r"(?:No space left|Read-only file system|cannot execute|cannot find|loading shared libraries|not found)",
    re.MULTILINE,
)
_ITS_OWN_ERROR = re.compile(rf"^{re.escape(CANDIDATE_NAME)}:\d+(?::\d+)?: error: ", re.MULTILINE)


class _Symbol(NamedTuple):
    name: str
    kind: str  # "FUNC", "OBJECT", "TLS"
    section: str


class HostCompiler:
    """g++, several builds at a time, each within `timeout_s` seconds and `memory_bytes` of address space.

    `include_dir` holds the contract's header. Raises EnvironmentFault where there is no g++.
    """

    def __init__(
        self, *, include_dir: Path, cache: BuildCache, processes: int, timeout_s: float, memory_bytes: int,
        gxx: Path | None = None,
    ) -> None:  # fmt: skip
        self._gxx = gxx or find_gxx()
        self._include_dir, self._cache = include_dir, cache
        self._processes, self._timeout_s, self._memory_bytes = processes, timeout_s, memory_bytes

    @cached_property
    def version(self) -> str:
        """As "g++ 12.2.0 (znver3)": -march=native makes the processor a part of it."""
        number = self._asked("-dumpfullversion")
        target = re.search(r"-march=\s+(\S+)", self._asked("-march=native", "-Q", "--help=target"))
        return f"g++ {number.strip()} ({target[1] if target else 'native'})"

    @property
    def flags(self) -> tuple[str, ...]:
        """Every option but the -D flags."""
        return _FLAGS

    def close(self) -> None:
        """Nothing runs on between two compilations."""

    def compile(self, source: str, builds: Sequence[Build]) -> tuple[CompiledBuild, ...]:
        """The builds in their order, from the cache where they are known; after a fault no further one is begun.

        Raises CandidateFault: UNSUPPORTED for a kernel that is not portable, COMPILE_ERROR with g++'s words, INVALID
        for one that could keep state from call to call. Raises EnvironmentFault where g++ or the cache cannot be used.
        """
        manifest = read_manifest(source)
        if not manifest.portable:
            targets = ", ".join(manifest.targets)
            raise CandidateFault(Status.UNSUPPORTED, f"targets {targets}; the host backend runs portable kernels only")
        text = host_source(source, (launch.kernel for launch in manifest.launches))
        names = build_names(builds)
        pool = ThreadPoolExecutor(self._processes)
        try:
            futures = [pool.submit(self._build, source, text, build) for build in builds]
            reports = [BuildReport(name=name, kernels=(), advisories=()) for name in names]
            return tuple(
                CompiledBuild(build=build, binary=future.result(), report=report)
                for build, future, report in zip(builds, futures, reports, strict=True)
            )
        finally:
            pool.shutdown(cancel_futures=True)

    def _build(self, source: str, text: str, build: Build) -> Path:
        key = self._key(text, build)
        known = self._cache.get(key)
        if known is not None:
            return known[0]
        with _blaming_the_machine(), tempfile.TemporaryDirectory(prefix="evo-gxx-") as name:
            folder = Path(name)
            (folder / CANDIDATE_NAME).write_text(source, encoding="utf-8", errors="replace")  # g++ quotes from it
            defines = "".join(f"#define {name} {value}\n" for name, value in build.defines)
            (folder / DEFINES_NAME).write_text(defines, encoding="ascii")
            log, binary = self._run_gxx(folder, text, build), folder / "candidate.so"
            if not binary.exists() and (not log or _KILLED in log):  # for want of memory, which may be another's doing
                log = self._run_gxx(folder, text, build)
            try:
                self._judge(binary, log)
            except CandidateFault as fault:
                if binary.exists() or ": error: " in log:  # a verdict, and not a g++ that something killed
                    self._cache.keep_fault(key, fault)
                raise
            return self._cache.keep(key, binary.read_bytes(), BuildReport(name="", kernels=(), advisories=()))

    def _run_gxx(self, folder: Path, text: str, build: Build) -> str:
        """What g++ says. Raises CandidateFault where it takes too long, EnvironmentFault for trouble of ours."""
        includes = ("-include", str(RUNTIME / "cuda_on_cpu.h"), "-I", str(RUNTIME), "-I", str(self._include_dir))
        element, *_ = build.flags
        output = ("-x", "c++", "-", "-o", "candidate.so")
        command = (str(self._gxx), *_FLAGS, *_DIAGNOSTICS, element, *includes, *output)
        limits = (str(self._memory_bytes >> 10), str(int(self._timeout_s) + 1), str(_FILE_BYTES >> 9))
        environment = {**listed_environment(os.environ), "LC_ALL": "C", "TMPDIR": str(folder)}
        with (
            BoundedLog(_LOG_BYTES) as log,
            subprocess.Popen(  # noqa: S603  # the arguments are ours; the candidate comes by stdin
                ("/bin/sh", "-c", _LIMITED, "sh", *limits, *command),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log.writer,
                cwd=folder, env=environment, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            try:
                process.communicate(text.encode(errors="replace"), timeout=self._timeout_s)
            except subprocess.TimeoutExpired as error:
                reason = f"compiling took longer than {self._timeout_s:g} s"
                raise CandidateFault(Status.COMPILE_ERROR, reason) from error
            finally:  # also where g++ has ended: if something killed it, cc1plus goes on, and the log with it
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            words = log.text()
        ours = not _ITS_OWN_ERROR.search(words) and (_OUR_TROUBLE.search(words) or _bounded_by_others(words))
        if process.returncode != 0 and ours:
            raise EnvironmentFault(f"g++ cannot work here: {words[-500:]}")
        if process.returncode != 0:
            (folder / "candidate.so").unlink(missing_ok=True)  # a part of one
        return words

    def _judge(self, binary: Path, log: str) -> None:
        """Raises CandidateFault where there is no binary, or one that keeps state or could."""
        if not binary.exists():
            raise CandidateFault(Status.COMPILE_ERROR, host_errors(log))
        called = self._foreign_functions(binary)
        if called:
            raise invalid(f"the source calls {', '.join(called)}; a portable kernel may call CUDA's own functions only")
        if own := self._own_library(binary):
            raise invalid(f"the source defines {', '.join(own)}, a name of the C library; choose another")
        if kept := self._writable_data(binary):
            raise invalid(
                f"the source keeps state in memory, or could: {', '.join(kept)}. Nothing may be kept from call to "
                "call; use params.workspace for scratch space"
            )

    def _own_library(self, binary: Path) -> list[str]:
        """The C library's functions that the binary has of its own: our runtime would call those instead."""
        return [
            symbol.name
            for symbol in self._symbols(binary)
            if symbol.kind == "FUNC" and symbol.section != "*UND*" and _LIBRARY.fullmatch(symbol.name)
        ]

    def _writable_data(self, binary: Path) -> list[str]:
        """The variables that outlive a launch: all that is static and writable but shared memory and the runtime's.

        Those without a type are places in such memory that the linker names where a source asks for them: `end`.
        """
        kept = [
            symbol.name
            for symbol in self._symbols(binary)
            if symbol.kind in ("OBJECT", "TLS", "NOTYPE")
            and _WRITABLE.match(symbol.section)
            and not _RUNTIME_DATA.fullmatch(symbol.name)
        ]
        return demangled(kept[:_MOST_NAMES])

    def _symbols(self, binary: Path) -> list[_Symbol]:
        listing = self._listing(shutil.which("nm") or "nm", "--format=sysv", str(binary))
        rows = [[cell.strip() for cell in line.split("|")] for line in listing.splitlines()]
        return [_Symbol(name=row[0], kind=row[3], section=row[6]) for row in rows if len(row) == 7]

    def _foreign_functions(self, binary: Path) -> list[str]:
        """What the binary needs from outside that no kernel has a use for."""
        listing = self._listing(shutil.which("nm") or "nm", "-D", "--undefined-only", "--format=posix", str(binary))
        names = (line.split(" ", 1)[0].split("@", 1)[0] for line in listing.splitlines())
        return [name for name in names if not _LIBRARY.fullmatch(name)]

    def _key(self, text: str, build: Build) -> str:
        parts = [_JUDGEMENT, text, self._headers_sha256, self.version, *_FLAGS, *build.flags]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @cached_property
    def _headers_sha256(self) -> str:
        files = [*sorted(RUNTIME.glob("*.h")), self._include_dir / "attention.cuh"]
        try:
            return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
        except OSError as error:
            raise EnvironmentFault(f"a header cannot be read: {error}; install the project again") from error

    def _asked(self, *question: str) -> str:
        return self._listing(str(self._gxx), *question)

    def _listing(self, *command: str) -> str:
        environment = {**listed_environment(os.environ), "LC_ALL": "C"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
        except OSError as error:
            raise EnvironmentFault(f"{command[0]} does not work: {error}; install g++ with its binutils") from error
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
            raise EnvironmentFault(f"{command[0]} does not work: {said}; install g++ with its binutils, or mend that")
        return done.stdout


def find_gxx() -> Path:
    """The g++ on the PATH. Raises EnvironmentFault where there is none."""
    path = shutil.which("g++")
    if path is None:
        raise EnvironmentFault(
            "no g++ on the PATH; the host backend needs it: install it (Debian, Ubuntu: apt install g++), or use a GPU"
        )
    return Path(path)


@contextmanager
def _blaming_the_machine() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"g++ cannot be run here: {error}; look for space in the folder for temporary files (TMPDIR), and at the "
            "limits that this was started with (ulimit -a)"
        ) from error


def _bounded_by_others(words: str) -> bool:
    """Whether g++ ended at a limit on files that this process was started with, and not at ours."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return "File size limit" in words and 0 <= limit < _FILE_BYTES
