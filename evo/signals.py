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
