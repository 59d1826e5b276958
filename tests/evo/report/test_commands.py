"""`evo report` and `evo watch` as they are typed."""

import contextlib
import http.client
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import parsed
from rich.console import Console
from small_runs import write_run

from evo.cli import run as evo
from population.archive import open_archive
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def one(here: Path) -> RunFolder:
    return write_run(here / "runs", "one", [0.5, 0.75])


def typed(*words: str) -> tuple[int, str, str]:
    out, errors = io.StringIO(), io.StringIO()
    code = evo(words, Console(file=out, width=200), Console(file=errors, width=200))
    return code, out.getvalue(), errors.getvalue()


def test_the_report_lies_in_the_runs_folder(one: RunFolder) -> None:
    assert typed("report", "one") == (0, "written: runs/one/report.html\n", "")
    html = one.report.read_text(encoding="utf-8")
    assert parsed(html).all("h1")[0].text == "one"
    assert "data-live" not in html.partition("<style>")[0]


@pytest.mark.parametrize("words", [("one", "--out", "page.html"), ("--out", "page.html", "runs/one")])
def test_or_where_it_is_told_to(one: RunFolder, here: Path, words: tuple[str, ...]) -> None:
    assert typed("report", *words) == (0, "written: page.html\n", "")
    assert not one.report.exists()
    assert (here / "page.html").is_file()


def test_a_run_that_goes_on_has_a_report(one: RunFolder) -> None:
    with open_archive(one):
        assert typed("report", "one")[0] == 0
    assert parsed(one.report.read_text(encoding="utf-8")).all("p", class_="state state-running")[0].text == "running"


@pytest.mark.parametrize("command", ["report", "watch"])
def test_a_run_that_is_not_there_or_holds_no_archive_is_one_line(here: Path, command: str) -> None:
    create_run_folder(here / "runs", "empty")
    code, out, errors = typed(command, "gone")
    assert (code, out) == (2, "")
    assert errors == "evo: runs/gone: no such run; expected the folder of a run, such as runs/first-try\n"
    code, _, errors = typed(command, "empty")
    assert code == 2
    assert errors.count("\n") == 1
    assert "runs/empty" in errors


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("report",), "evo: report: no run named; expected evo report RUN [--out FILE]\n"),
        (("report", "a", "b"), "evo: report: a b; expected evo report RUN [--out FILE]\n"),
        (("report", "--out"), "evo: report: --out; expected evo report RUN [--out FILE]\n"),
        (("watch",), "evo: watch: no run named; expected evo watch RUN [RUN…] [port=8765] [host=127.0.0.1]\n"),
    ],
)
def test_a_wrong_command_line_is_one_line(one: RunFolder, words: tuple[str, ...], expected: str) -> None:
    assert typed(*words) == (2, "", expected)


@pytest.mark.parametrize("port", ["no", "65536", "-1", "", "٣"])
def test_a_port_is_a_number(one: RunFolder, port: str) -> None:
    expected = f"evo: watch: port={port}: expected a number from 0 (any that is free) to 65535\n"
    assert typed("watch", "one", f"port={port}") == (2, "", expected)


def test_a_mistyped_option_is_told_the_right_one(one: RunFolder) -> None:
    _, _, errors = typed("watch", "one", "prot=1")
    assert errors.startswith("evo: watch: 'prot=1' is no option; did you mean 'port'?")


def test_a_port_that_is_taken_is_one_line(one: RunFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        what = "is taken, perhaps by another evo watch; name another, or port=0 for any that is free"
        assert typed("watch", "one", f"port={port}") == (2, "", f"evo: watch: port={port} {what}\n")


def test_a_host_that_is_none_of_this_machines_is_one_line(one: RunFolder) -> None:
    code, out, errors = typed("watch", "one", "host=192.0.2.1", "port=0")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("evo: watch: host=192.0.2.1 port=0: ")
    assert errors.endswith("; expected a name or an address of this machine\n")


def test_a_folder_whose_name_is_no_text_has_a_report(here: Path) -> None:
    made = write_run(here / "runs", "one", [0.5, 0.75]).path
    run = RunFolder(made.rename(made.with_name(os.fsdecode(b"caf\xe9"))))
    command = [sys.executable, "-m", "evo", "report", run.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"written: {here}/runs/caf\\udce9/report.html\n", "")
    assert parsed(run.report.read_text(encoding="utf-8")).all("h1")[0].text == "caf\ufffd"


def test_a_folder_that_cannot_be_written_is_one_line(one: RunFolder) -> None:
    for out, why in (("no/such/page.html", "No such file or directory"), ("runs", "Is a directory")):
        expected = f"evo: {out} cannot be written ({why}); name another file or make room\n"
        assert typed("report", "one", "--out", out) == (2, "", expected)
    assert typed("report", "one", "--out", "")[0] == 2


@contextlib.contextmanager
def watching(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command in a process of its own, and its first line."""
    command = [sys.executable, "-m", "evo", "watch", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # A shell in the background has its children ignore SIGINT, and they would hand that on.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process, process.stdout.readline()
        process.kill()


def test_ctrl_c_ends_the_watching_quietly(one: RunFolder) -> None:
    shutil.copytree(one.path, "runs/two")
    with watching("one", "two", "port=0") as (process, line):
        found = re.fullmatch(r"one, two: http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends the watching; .*\)\n", line)
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        connection.request("GET", "/")
        assert "2 runs side by side" in connection.getresponse().read().decode()
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
