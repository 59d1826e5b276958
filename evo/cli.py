"""The one console script: finds the command that was named, and runs it."""

import importlib
import importlib.metadata
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

USAGE = """\
usage: evo COMMAND [arguments]

  evolve [key=value …] [-m]           search; -m sweeps over comma-separated values; resume=RUN goes on with a run
  verify KERNEL.cu [key=value …]      compile, check, time and score one kernel; --json; exit 0 viable, 1 not viable
  ask RUN [n=8] [key=value …]         write the next prompts to RUN/outbox; begins a run that is not there
  tell RUN [partial=true]             take in RUN/inbox and RUN/measured, and go on as far as they go
  evaluate RUN [backend.…=value …]    measure RUN/pending into RUN/measured, on any machine that holds the two
  questions list|add|lint|promote     the bank, and what its questions brought; add RUN "…?" asks a running search
  kernels add|merge RUN …             add KERNEL.cu… [parents=ID,ID] puts one's own to a run; merge ID ID joins two
  compare RUNS… [by=style]            statistics over runs, in groups; --csv FILE, --json FILE, --plot FILE.png|.svg
  report RUN [--out FILE]             what happened in a run, as one HTML file: report.html in its folder
  watch RUN [RUN…] [port=8765]        the same, live, for a browser on this machine, while the search goes on
  runs [FOLDER] [--json]              every run below a folder: its state, its best, what it has cost
  table RUNS… --out FILE.jsonl.xz     what runs measured, for backend=recorded to answer from without a device
  trace export|replay                 a run as one file, export RUN [--out FILE]; the same search from it, replay FILE
  doctor                              what this machine has, and what to install for what it lacks

`evo COMMAND --help` shows a command's line, `evo --version` the version.
`evo evolve --cfg job` shows every option with its value; the files in conf/ explain them.
Exit code 2: the environment or the command line is at fault, and the last line says how.
"""

COMMANDS = (
    "evolve", "verify", "ask", "tell", "evaluate", "questions", "kernels", "compare", "report", "watch", "runs",
    "table", "trace", "doctor",
)  # fmt: skip
BAD_COMMAND_LINE = 2
_HELP = frozenset({"-h", "--help"})
INTERRUPTED = 130  # 128 + SIGINT


def main() -> None:
    """The console script."""
    try:
        from evo.console import open_console  # imports take seconds, in which Ctrl-C and a closed pipe count too

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a path may hold what the terminal has no letter for
        logging.raiseExceptions = False  # a log on a full disk shows no tracebacks beside the one line that says so
        sys.exit(run(sys.argv[1:], open_console(), open_console(stderr=True)))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more as it ends
        sys.exit(BAD_COMMAND_LINE)


def run(arguments: Sequence[str], out: "Console", errors: "Console") -> int:
    """Run one command; its exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # a run's log goes to its folder, an error to one line
    if not arguments or arguments[0] in (*_HELP, "help"):
        out.print(USAGE, markup=False, highlight=False)
        return 0 if arguments else BAD_COMMAND_LINE
    if arguments[0] == "--version":
        out.print(f"evo {_version()}", markup=False, highlight=False)
        return 0
    from evo.commands.errors import complain, guarded

    name = arguments[0]
    if name not in COMMANDS:
        complain(errors, f"{name!r} is no command; expected one of {', '.join(COMMANDS)}")
        return BAD_COMMAND_LINE
    if name != "evolve" and _HELP.intersection(arguments[1:]):  # Hydra has more to say of evolve
        out.print(_usage_of(name), markup=False, highlight=False, soft_wrap=True)
        return 0
    return guarded(lambda: _command(name)(arguments[1:], out), errors)


def _version() -> str:
    try:
        return importlib.metadata.version("question-evo")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def _usage_of(name: str) -> str:
    [line] = [line for line in USAGE.splitlines() if line.startswith(f"  {name} ")]
    return f"usage: evo {line.strip()}"


def _command(name: str) -> "Callable[[Sequence[str], Console], int]":
    """Imported when it is called: no command needs to wait for what another one imports."""
    command: Callable[[Sequence[str], Console], int] = getattr(importlib.import_module(f"evo.commands.{name}"), name)
    return command
