"""What a child process may take of the machine, and how long it may live. Called in the child, before anything else."""

import fcntl
import multiprocessing
import os
import resource
import signal
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What a child may take of the machine; core files are always off.

    `memory_bytes` counts address space beyond that of the preloaded modules. CUDA reserves terabytes of it, so a
    process that uses a GPU has None.
    """

    memory_bytes: int | None = None
    open_files: int = 1024
    file_bytes: int | None = None  # of any one file that it writes


def apply_limits(limits: ProcessLimits) -> None:
    """Hold the calling process to its limits, for good."""
    def lower(kind: int, value: int) -> None:
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))

    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.file_bytes is not None:
        lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if limits.memory_bytes is not None:
        lower(resource.RLIMIT_AS, _address_space_bytes() + limits.memory_bytes)


def _address_space_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def die_with_parent() -> None:
    """Have the kernel kill this process group when the parent is gone, whatever Python does at that moment.

    The sentinel is a pipe that only the parent holds open, so that its one event is the parent's end. (The signal for
    a parent's death, PR_SET_PDEATHSIG, would follow the fork server instead.)
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a child process without a parent; it must be started by KillableProcess")
    sentinel = parent.sentinel
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpgid(0))
    fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([sentinel], 0):  # it went before we asked to be told
        os.killpg(0, signal.SIGKILL)
