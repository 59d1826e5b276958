"""What a child process may take of the machine, and how long it may live.

Called in the child, before anything else; `kill_at_hangup` also serves the parent of a program that is not ours.
"""

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
    kill_at_hangup(parent.sentinel, os.getpgid(0))
    if wait([parent.sentinel], 0):  # it went before we asked to be told
        os.killpg(0, signal.SIGKILL)


def kill_at_hangup(reading: int, group: int) -> None:
    """Have the kernel kill a process group when nobody holds the other end of a pipe any more.

    It does so for as long as a process holds this end open, whichever of them asked.
    """
    fcntl.fcntl(reading, fcntl.F_SETOWN, -group)
    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
