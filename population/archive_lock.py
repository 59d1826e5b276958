"""One writer a run: the lock file beside the archive, and which journal the disk under it allows."""

import fcntl
import logging
import os
import re
import socket
from pathlib import Path
from typing import Self

from population.faults import ArchiveError
from population.run_folder import RunFolder

logger = logging.getLogger(__name__)

_HOLDER = re.compile(r"pid (?P<pid>[1-9]\d*) on host (?P<host>.*)", re.ASCII)  # as `ArchiveLock` writes it

LOCAL_FILE_SYSTEMS = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"})
"""Where SQLite's WAL works: its index is memory shared by the processes of one host. All others count as network."""


class ArchiveLock:
    """Held from construction to `close`, or to the end of the process, however it ends: a dead writer locks nobody out.

    The lock is the kernel's (flock); the pid and host in the file only name its holder. A process forked without an
    exec shares it. Raises ArchiveError where another process holds it, or the file system has no locks.
    """

    def __init__(self, run: RunFolder) -> None:
        try:
            self._file = run.lock.open("a+", encoding="utf-8", errors="replace")
        except OSError as error:
            raise ArchiveError(f"{run.lock}: {error}; the folder of a run must be writable") from error
        try:
            self._claim(run)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Lets the next writer in. May be called twice."""
        if not self._file.closed:
            try:
                self._file.truncate(0)
            finally:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self, run: RunFolder) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder() or "another process"
            raise ArchiveError(f"run {run.name} is being written by {holder}; wait for it or end it") from error
        except OSError as error:
            raise ArchiveError(f"{run.lock}: no lock to be had ({error}); put the run on a local disk") from error
        if last := self._holder():
            logger.warning("run %s: its last writer, %s, ended without closing the archive", run.name, last)
        try:
            self._file.truncate(0)
            self._file.write(f"pid {os.getpid()} on host {socket.gethostname()}\n")
            self._file.flush()
        except OSError as error:
            raise ArchiveError(f"{run.lock}: {error}; make room or name another folder for runs") from error

    def _holder(self) -> str:
        self._file.seek(0)
        return self._file.read(1000).strip()


def living_writer(run: RunFolder, *, processes: Path = Path("/proc")) -> str | None:
    """Who holds the lock of a run, as the file names them; None where nobody does. Takes no lock.

    A process of this host is looked for: it must be alive and have the file open, as far as `processes` (in the form of
    /proc) shows it. One of another host cannot be, and counts as alive.
    """
    try:
        holder = run.lock.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    named = _HOLDER.fullmatch(holder)
    if named is None or (named["host"] == socket.gethostname() and not _has_open(run.lock, processes / named["pid"])):
        return None
    return holder


def _has_open(path: Path, process: Path) -> bool:
    """Whether a process has a file open; where its files cannot be seen, whether there is such a process."""
    try:
        opened = list((process / "fd").iterdir())
    except OSError:
        return process.exists()
    return any(_is(path, each) for each in opened)


def _is(path: Path, opened: Path) -> bool:
    try:
        return opened.samefile(path)
    except OSError:  # closed meanwhile
        return False


def journal_mode(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The SQLite journal for a file in `folder`: "WAL" on a local disk, "DELETE" on any other, and where unsure.

    `mounts` is a table in the form of /proc/mounts.
    """
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return "DELETE"
    return "WAL" if _file_system(folder.resolve(), table) in LOCAL_FILE_SYSTEMS else "DELETE"


def _file_system(folder: Path, mounts: str) -> str:
    """The type of the deepest mount that holds `folder`; of two on one point the later one, which hides the other."""
    best, depth = "", 0
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        mounted = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        if folder.is_relative_to(mounted) and len(mounted.parts) >= depth:
            best, depth = kind, len(mounted.parts)
    return best
