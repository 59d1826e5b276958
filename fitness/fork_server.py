"""The server that child processes are forked from: modules that take long to import are loaded there once."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver

from fitness.child_environment import listed_environment

SERVED = "FITNESS_LISTED_ENVIRONMENT"  # a child that lacks it was forked by a server that may hold keys


def start_fork_server(preload: Sequence[str] = ()) -> None:
    """Start the server that all child processes are forked from, under the listed environment.

    `preload` names modules to import there once, so that a restart costs a fork and not an import; those that are not
    installed are passed over. Call it once, before threads start: for an instant the names that are not listed are
    absent from `os.environ`. A server that already runs is left as it is. It and its children ignore Ctrl-C, which a
    terminal sends to all of a command's processes: whoever started them ends them.
    """
    multiprocessing.set_forkserver_preload(list(preload))
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update({**listed_environment(kept), SERVED: "1"})
    try:
        with _interrupts_ignored():
            forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """What is started within it ignores SIGINT from its first instruction on."""
    if threading.current_thread() is not threading.main_thread():  # where Python sets no signal handlers
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
