"""Ctrl-C and preemption: the first signal ends a run in order, a second one at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from evo.stop import Interrupted

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def orderly_stop() -> Iterator[None]:
    """Within it, SIGINT, SIGTERM and SIGUSR1 (preemption) raise Interrupted; a second one kills as if unhandled.

    Everything that a run keeps is written in transactions or renamed into place, so Interrupted may strike anywhere.
    Outside the main thread Python delivers no signals, and nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in _STOPPING}

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(signal.Signals(number).name, exit_code=128 + number)

    for number in _STOPPING:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interruption(BaseException):
    """Ends a sweep by a signal: passes through Hydra, which would go on with the next job."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextmanager
def signals_end_a_sweep() -> Iterator[None]:
    """Within it, preemption is heard between two jobs, and while jobs run in other processes."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interruption(128 + number)

    if threading.current_thread() is not threading.main_thread():  # where Python sets no signal handlers
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
