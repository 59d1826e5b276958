"""Ctrl-C and preemption: the first signal ends a run in order, a second one at once."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from evo.stop import Interrupted

_PREEMPTION = (signal.SIGTERM, signal.SIGUSR1)
_STOPPING = (signal.SIGINT, *_PREEMPTION)


@contextmanager
def orderly_stop() -> Iterator[None]:
    """Within it, SIGINT, SIGTERM and SIGUSR1 (preemption) raise Interrupted; a second one kills as if unhandled.

    Everything that a run keeps is written in transactions or renamed into place, so Interrupted may strike anywhere.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(signal.Signals(number).name, exit_code=128 + number)

    with _handled(_STOPPING, interrupt):
        yield


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

    with _handled(_PREEMPTION, interrupt):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within it these signals go to the handler, afterwards to whoever had them before.

    Outside the main thread, where Python sets no handlers and delivers no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
