"""Children that loop, crash, grow and are left behind; the parent always has a process for the next request."""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fitness.child_environment import listed_environment
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.process import Done, KillableProcess, ProcessDied, ProcessTimeout, Progress
from fitness.process_limits import ProcessLimits

MIB = 1 << 20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> None:
    start_fork_server()


@pytest.fixture
def process() -> Iterator[KillableProcess]:
    with KillableProcess(obey, limits=ProcessLimits(memory_bytes=256 * MIB, file_bytes=MIB)) as process:
        yield process


def obey(connection: Connection) -> None:
    """Do what each request says."""
    while True:
        order, *arguments = connection.recv()
        ORDERS[order](connection, *arguments)


def echo(connection, value):
    connection.send(Done(value))


def loop(connection):
    connection.send(Progress("warming up", deadline_s=0.1))
    while True:
        pass


def say_nothing(connection):
    while True:
        pass


def count(connection, upto):
    for step in range(upto):
        connection.send(Progress(step))
    connection.send(Done(upto))


def crash(connection):
    os.write(1, b"about to read address 0")
    ctypes.string_at(0)


def leave(connection, code):
    os.write(2, b"leaving early\n")
    os._exit(code)


def grow(connection, size):
    connection.send(Done(len(bytearray(size))))


def write_file(connection, path, size):
    path.write_bytes(bytes(size))
    connection.send(Done(size))


def shout(connection, lines):
    for number in range(lines):
        os.write(1, b"line %d\n" % number)
    os._exit(1)


def tell_environment(connection):
    at_birth = Path("/proc/self/environ").read_text()
    connection.send(Done((dict(os.environ), at_birth)))


def signal_itself(connection, number):
    os.kill(os.getpid(), number)
    connection.send(Done("still here"))


def start_grandchild(connection):
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    connection.send(Progress(child.pid, deadline_s=0.1))
    while True:
        pass


def refuse_to_end(connection):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.kill(os.getpid(), signal.SIGTERM)
    loop(connection)


def leave_a_daemon(connection):
    daemon = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    connection.send(Progress(daemon.pid, deadline_s=0.1))
    while True:
        pass


def talk_nonsense(connection):
    connection.send("not a message")


def raise_error(connection):
    raise RuntimeError("no such thing")


ORDERS = {
    function.__name__: function
    for function in (
        echo, loop, say_nothing, count, crash, leave, grow, write_file, shout, tell_environment, signal_itself,
        start_grandchild, refuse_to_end, leave_a_daemon, talk_nonsense, raise_error,
    )
}  # fmt: skip


def ask(process, *order, deadline_s=30.0, on_progress=None):
    return process.request(order, deadline_s=deadline_s, on_progress=on_progress)


def pid_of(process):
    ask(process, "echo", 1)
    return process.pid


def wait_for_end(pid: int) -> bool:
    """Whether a process is gone within ten seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended, _, _ = select.select([descriptor], [], [], 10.0)
        return bool(ended)
    finally:
        os.close(descriptor)


def test_answers_one_request_after_another_from_the_same_process(process):
    assert ask(process, "echo", "first") == "first"
    pid = process.pid
    assert ask(process, "echo", {"second": [2]}) == {"second": [2]}
    assert process.pid == pid


def test_progress_comes_in_order_before_the_answer(process):
    seen = []
    assert ask(process, "count", 3, on_progress=seen.append) == 3
    assert seen == [0, 1, 2]


def test_an_endless_loop_is_killed_and_the_next_request_answered(process):
    pid = pid_of(process)
    with pytest.raises(ProcessTimeout, match=r"no word for 0\.1 s") as timeout:
        ask(process, "loop")
    assert timeout.value.last_progress == "warming up"
    assert wait_for_end(pid)
    assert ask(process, "echo", 2) == 2


def test_the_first_deadline_holds_without_progress(process):
    with pytest.raises(ProcessTimeout) as timeout:
        ask(process, "say_nothing", deadline_s=0.1)
    assert timeout.value.last_progress is None


def test_a_kill_takes_what_the_child_has_started(process):
    with pytest.raises(ProcessTimeout) as timeout:
        ask(process, "start_grandchild")
    assert wait_for_end(timeout.value.last_progress)


def test_a_child_that_takes_no_signal_is_killed_all_the_same(process):
    pid = pid_of(process)
    with pytest.raises(ProcessTimeout):
        ask(process, "refuse_to_end")
    assert wait_for_end(pid)
    assert ask(process, "echo", 6) == 6


def test_what_outlives_the_kill_of_its_parent_holds_nobody_up(process):
    """It left the group, and holds the pipe to which the child wrote: killing a group is no sandbox."""
    with pytest.raises(ProcessTimeout) as timeout:
        ask(process, "leave_a_daemon")
    daemon = timeout.value.last_progress
    try:
        assert ask(process, "echo", 7) == 7
        assert Path(f"/proc/{daemon}").exists()
    finally:
        os.kill(daemon, signal.SIGKILL)
    assert wait_for_end(daemon)


def test_a_child_whose_end_does_not_come_is_the_environments_fault_until_it_does(process):
    """As where it hangs in a driver; here whoever would tell of its end is held."""
    server = forkserver._forkserver._forkserver_pid
    pid = pid_of(process)
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(ProcessTimeout):
            ask(process, "loop")
        with pytest.raises(EnvironmentFault, match=f"process {pid} does not die, though it was killed"):
            ask(process, "echo", 8)
    finally:
        os.kill(server, signal.SIGCONT)
    assert echoed_in_the_end(process) == "back"
    assert process.pid not in (None, pid)


def echoed_in_the_end(process):
    """What a process answers as soon as one can be had, within half a minute."""
    end = time.monotonic() + 30.0
    while True:
        try:
            return ask(process, "echo", "back")
        except EnvironmentFault:
            if time.monotonic() > end:
                raise


def test_a_crash_is_named_by_its_signal(process):
    with pytest.raises(ProcessDied, match="SIGSEGV") as death:
        ask(process, "crash")
    assert death.value.cause == "SIGSEGV"
    assert death.value.output == "about to read address 0"
    assert ask(process, "echo", 3) == 3


def test_an_exit_is_named_by_its_code_with_the_last_of_the_output(process):
    with pytest.raises(ProcessDied) as death:
        ask(process, "leave", 7)
    assert death.value.cause == "exit code 7"
    assert death.value.output == "leaving early"


def test_an_exception_in_the_child_ends_it_with_its_traceback(process):
    with pytest.raises(ProcessDied) as death:
        ask(process, "raise_error")
    assert death.value.cause == "exit code 1"
    assert "RuntimeError: no such thing" in death.value.output


def test_only_the_last_of_much_output_is_kept(process):
    with pytest.raises(ProcessDied) as death:
        ask(process, "shout", 20_000)
    assert death.value.output.endswith("line 19999")
    assert len(death.value.output) <= 8192


def test_an_error_while_progress_is_taken_in_ends_the_process_and_keeps_its_own_name(process):
    pid = pid_of(process)

    def refuse(payload):
        raise TimeoutError("the archive is slow")

    with pytest.raises(TimeoutError, match="the archive is slow"):
        ask(process, "count", 3, on_progress=refuse)
    assert wait_for_end(pid)
    assert ask(process, "echo", 4) == 4


def test_an_unknown_message_is_refused(process):
    with pytest.raises(TypeError, match="sent str; expected Progress or Done"):
        ask(process, "talk_nonsense")


def test_a_process_that_dies_idle_is_replaced_without_blame(process):
    pid = pid_of(process)
    os.kill(pid, signal.SIGKILL)
    assert wait_for_end(pid)
    assert ask(process, "echo", 5) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_to_a_whole_job_leave_the_child_at_work(process, number):
    assert ask(process, "signal_itself", number) == "still here"


def test_memory_beyond_the_limit_ends_the_child(process):
    assert ask(process, "grow", 64 * MIB) == 64 * MIB
    with pytest.raises(ProcessDied) as death:
        ask(process, "grow", 512 * MIB)
    assert "MemoryError" in death.value.output


def test_a_file_beyond_the_limit_ends_the_child(process, tmp_path):
    assert ask(process, "write_file", tmp_path / "small", 1000) == 1000
    with pytest.raises(ProcessDied) as death:
        ask(process, "write_file", tmp_path / "large", 2 * MIB)
    assert "File too large" in death.value.output


def test_only_listed_names_and_no_secrets_among_them():
    environment = {"PATH": "/bin", "CUDA_PATH": "/cuda", "OPENAI_API_KEY": "sk", "NVIDIA_API_KEY": "nv", "EDITOR": "ed"}
    assert listed_environment(environment) == {"PATH": "/bin", "CUDA_PATH": "/cuda"}


def test_a_terminals_ctrl_c_passes_the_fork_server_by():
    server = forkserver._forkserver._forkserver_pid
    status = Path(f"/proc/{server}/status").read_text()
    ignored = int(re.search(r"SigIgn:\s+([0-9a-f]+)", status)[1], 16)
    assert ignored >> (signal.SIGINT - 1) & 1


def test_no_key_reaches_a_child():
    script = (
        "import os\n"
        "from fitness.fork_server import start_fork_server\n"
        "from tests.fitness.test_process import KillableProcess, ProcessLimits, ask, obey\n"
        "start_fork_server(['json', 'no_such_module'])\n"
        "assert os.environ['OPENAI_API_KEY'] == 'sk-planted'\n"
        "with KillableProcess(obey, limits=ProcessLimits()) as process:\n"
        "    now, at_birth = ask(process, 'tell_environment')\n"
        "assert 'sk-planted' not in str(now) + at_birth, now\n"
        "assert now['PATH'] == os.environ['PATH']\n"
    )
    done = run_script(script, {"OPENAI_API_KEY": "sk-planted", "CUDA_SECRET_KEY": "sk-planted"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_without_a_listed_environment_is_refused():
    script = (
        "from fitness.faults import EnvironmentFault\n"
        "from tests.fitness.test_process import KillableProcess, ProcessLimits, ask, obey\n"
        "try:\n"
        "    ask(KillableProcess(obey, limits=ProcessLimits()), 'echo', 1)\n"
        "except EnvironmentFault as fault:\n"
        "    assert 'call start_fork_server first' in str(fault), fault\n"
        "else:\n"
        "    raise SystemExit('it was started')\n"
    )
    done = run_script(script, {})
    assert (done.returncode, done.stderr) == (0, "")


def run_script(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in the repository's root, where this file is a module."""
    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_child_goes_with_a_parent_that_is_killed():
    script = (
        "import sys\n"
        "from tests.fitness.test_process import KillableProcess, ProcessLimits, ask, obey, start_fork_server\n"
        "start_fork_server()\n"
        "process = KillableProcess(obey, limits=ProcessLimits())\n"
        "ask(process, 'echo', 1)\n"
        "print(process.pid, flush=True)\n"
        "ask(process, 'start_grandchild', on_progress=lambda pid: print(pid, flush=True) or sys.stdin.read())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child, grandchild = int(parent.stdout.readline()), int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    assert wait_for_end(child)
    assert wait_for_end(grandchild)


def test_twenty_restarts(process):
    pids = set()
    for _ in range(20):
        pids.add(pid_of(process))
        process.close()
    assert len(pids) == 20
