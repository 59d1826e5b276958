"""A child process that does one thing at a time, can be killed at any moment, and comes back for the next."""

import atexit
import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from fitness.faults import EnvironmentFault
from fitness.fork_server import SERVED
from fitness.process_limits import ProcessLimits, apply_limits, die_with_parent

logger = logging.getLogger(__name__)


# Starting a child makes multiprocessing look after all its children, and two threads must not ask one of them for its
# exit code at once: the second would read none.
_CHILDREN = threading.Lock()

_START_S = 120.0  # for a first start: the fork server imports what it preloads, torch among it
_KILL_S = 5.0
_STALL_S = 30.0  # within one message: a peer that stops in mid-message is stuck
_TAIL_BYTES = 8192


@dataclass(frozen=True)
class Progress:
    """Sent by the child on its way: the next message comes within `deadline_s` (None: within as long as this one)."""

    payload: object
    deadline_s: float | None = None


@dataclass(frozen=True)
class Done:
    """Sent by the child at the end of a request."""

    payload: object


@dataclass(frozen=True)
class _Ready:
    """Sent by the child once its limits are in force; `refusal` says why it will not work."""

    refusal: str = ""


class ProcessFailure(Exception):
    """A request that was not answered. The process is gone; the next request starts a fresh one."""

    def __init__(self, message: str, *, last_progress: object, output: str) -> None:
        super().__init__(message)
        self.last_progress = last_progress  # None where there was none
        self.output = output  # the last of what it wrote to stdout and stderr


class ProcessTimeout(ProcessFailure):
    """The child let a deadline pass and was killed."""


class ProcessDied(ProcessFailure):
    """The child ended in mid-request; `cause` is "SIGSEGV" or "exit code 3"."""

    def __init__(self, cause: str, *, last_progress: object, output: str) -> None:
        super().__init__(f"the process ended with {cause}", last_progress=last_progress, output=output)
        self.cause = cause


class KillableProcess:
    """A child running `target(connection)`, which receives a request, answers it, and receives the next.

    The target, a picklable function, sends any number of Progress messages and then one Done for each request. The
    process starts with the first request, and again after a failure; `start_fork_server` must have run.

    It protects the parent from crashes, endless loops, leaks and the child's use of memory and files, and keeps the
    parent's environment from the child. It is no sandbox: native code in the child has the user's own rights to files,
    processes and the network, and what it sends is unpickled.
    """

    def __init__(self, target: Callable[[Connection], None], *, limits: ProcessLimits) -> None:
        self._target = target
        self._limits = limits
        self._child: _Child | None = None
        self._stuck: _Child | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs now; None where none does."""
        return None if self._child is None else self._child.process.pid

    def request(
        self, message: object, *, deadline_s: float, on_progress: Callable[[object], None] | None = None
    ) -> object:
        """The payload of the child's Done. Its first message must come within `deadline_s`.

        Raises ProcessTimeout or ProcessDied, and EnvironmentFault where no process can be had. Whatever is raised, by
        `on_progress` too, the process is gone.
        """
        child = self._running()
        finished = False
        try:
            reply = self._exchange(child, deadline_s, None, message)
            while not isinstance(reply, Done):
                if not isinstance(reply, Progress):
                    raise TypeError(f"a child process sent {type(reply).__name__}; expected Progress or Done")
                if on_progress is not None:
                    on_progress(reply.payload)
                deadline_s = deadline_s if reply.deadline_s is None else reply.deadline_s
                reply = self._exchange(child, deadline_s, reply.payload)
            finished = True
            return reply.payload
        finally:
            if not finished:
                self._end(child)

    def _exchange(self, child: "_Child", deadline_s: float, last_progress: object, *messages: object) -> object:
        """Send what there is to send, and the child's next message. Raises ProcessTimeout or ProcessDied."""
        try:
            for message in messages:
                child.connection.send(message)
            return child.receive(deadline_s)
        except (TimeoutError, BlockingIOError) as error:  # BlockingIOError: it stopped in the middle of a message
            output = self._end(child)
            raise ProcessTimeout(f"no word for {deadline_s:g} s", last_progress=last_progress, output=output) from error
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            cause = child.cause_of_death()
            raise ProcessDied(cause, last_progress=last_progress, output=self._end(child)) from error

    def abort(self) -> None:
        """From another thread: kill the process, if one runs, so that the request under way fails."""
        if (child := self._child) is not None:
            child.strike()

    def close(self) -> None:
        """End the process, if one runs. A later request starts another."""
        if self._child is not None:
            self._end(self._child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> "_Child":
        if self._child is not None and self._child.connection.poll():
            self._end(self._child)  # only its end makes an idle child's pipe readable: no request is to blame
        if self._child is None:
            if self._stuck is not None and self._stuck.process.is_alive():
                raise EnvironmentFault(
                    f"process {self._stuck.process.pid} does not die, though it was killed: it hangs in the kernel or "
                    "a driver; check the device (nvidia-smi, dmesg) and restart the machine if it stays"
                )
            self._stuck = None
            self._child = _start_child(self._target, self._limits)
            atexit.register(self.close)  # before multiprocessing waits for its children
        return self._child

    def _end(self, child: "_Child") -> str:
        """Kill the child with all that it started; the last of its output."""
        if self._child is child:
            self._child = None
            atexit.unregister(self.close)
            if not child.kill():
                logger.error("process %s does not die within %g s of SIGKILL", child.process.pid, _KILL_S)
                self._stuck = child
        return child.output.tail()


@dataclass(frozen=True, kw_only=True)
class _Child:
    """One life of a child process, seen from the parent."""

    process: BaseProcess
    connection: Connection
    output: "_OutputTail"

    def receive(self, deadline_s: float) -> object:
        """The next message. Raises TimeoutError at the deadline, EOFError or OSError where the child is gone."""
        if not self.connection.poll(deadline_s):
            raise TimeoutError
        return self.connection.recv()

    def cause_of_death(self) -> str:
        """The signal's name or the exit code of a child that closed its end."""
        with _CHILDREN:
            self.process.join(_KILL_S)
            code = self.process.exitcode
        if code is None:
            return "its connection closed"
        names = {-number.value: number.name for number in signal.Signals}
        return names.get(code, f"exit code {code}" if code >= 0 else f"signal {-code}")

    def kill(self) -> bool:
        """Whether the child and its process group are gone."""
        self.connection.close()
        self.strike()
        with _CHILDREN:
            self.process.join(_KILL_S)
            return self.process.exitcode is not None

    def strike(self) -> None:
        """Send SIGKILL to the child and its process group."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may not have had the time to lead a group


class _OutputTail:
    """The last bytes of what a child writes, read by a thread so that a full pipe never stops the child."""

    def __init__(self, reader: Connection) -> None:
        self._reader = reader
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """What was kept; waits for the end of a child that is gone, but not for one that is stuck."""
        self._thread.join(1.0)
        return self._kept.decode(errors="replace").strip()

    def _drain(self) -> None:
        with self._reader:
            while chunk := os.read(self._reader.fileno(), 65536):
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]


def _start_child(target: Callable[[Connection], None], limits: ProcessLimits) -> _Child:
    """A child that has reported ready. Raises EnvironmentFault where it does not."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    reader, writer = context.Pipe(duplex=False)
    _bound_stalls(ours)
    process = context.Process(target=_run_child, args=(target, theirs, writer, limits), daemon=True)
    try:
        with _CHILDREN:
            process.start()
    except (EOFError, OSError) as error:
        reader.close()
        why = "a module that it preloads may have ended it, or memory or file descriptors have run out"
        raise EnvironmentFault(f"the fork server does not answer ({error!r}): {why}") from error
    finally:
        theirs.close()
        writer.close()
    child = _Child(process=process, connection=ours, output=_OutputTail(reader))
    try:
        ready = child.receive(_START_S)
    except (EOFError, OSError) as error:  # TimeoutError is an OSError
        child.kill()
        raise EnvironmentFault(f"a child process did not start: {error!r}; {child.output.tail()}") from error
    if ready != _Ready():
        child.kill()
        raise EnvironmentFault(f"a child process did not start: {ready}")
    return child


def _bound_stalls(connection: Connection) -> None:
    """Have reads and writes of one message fail after a while, where the peer stops in the middle of it."""
    patience = struct.pack("ll", int(_STALL_S), 0)  # struct timeval
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)


def _run_child(
    target: Callable[[Connection], None], connection: Connection, output: Connection, limits: ProcessLimits
) -> None:
    if SERVED not in os.environ:
        connection.send(_Ready("the fork server holds the whole environment; call start_fork_server first"))
        return
    os.setsid()  # a group of its own, so that a kill takes what it has started too
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(ignored, signal.SIG_IGN)  # the parent decides: a batch system signals every process of a job
    die_with_parent()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    apply_limits(limits)
    connection.send(_Ready())
    with contextlib.suppress(EOFError):  # the parent closed its end
        target(connection)
