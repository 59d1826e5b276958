"""The first signal ends a run in order; afterwards the process is as it was."""

import signal
import threading

import pytest

from evo.signals import orderly_stop
from evo.stop import Interrupted

STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_interrupts_with_its_exit_code(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as stop, orderly_stop():
        signal.raise_signal(number)
    assert stop.value.reason == f"interrupted by {number.name}"
    assert stop.value.exit_code == 128 + number


def test_a_second_one_is_left_to_the_system() -> None:
    dispositions = []
    with orderly_stop():
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        dispositions = [signal.getsignal(number) for number in STOPPING]
    assert dispositions == [signal.SIG_DFL] * 3


@pytest.mark.parametrize("interrupted", [True, False])
def test_the_former_handlers_come_back(interrupted: bool) -> None:
    before = [signal.getsignal(number) for number in STOPPING]
    with orderly_stop():
        assert all(signal.getsignal(number) != former for number, former in zip(STOPPING, before, strict=True))
        if interrupted:
            with pytest.raises(Interrupted):
                signal.raise_signal(signal.SIGUSR1)
    assert [signal.getsignal(number) for number in STOPPING] == before


def test_outside_the_main_thread_nothing_is_changed() -> None:
    before, seen = [signal.getsignal(number) for number in STOPPING], []

    def elsewhere() -> None:
        with orderly_stop():
            seen.append([signal.getsignal(number) for number in STOPPING])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]
