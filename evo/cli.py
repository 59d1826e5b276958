"""The one console script: finds the command that was named, and runs it."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from evo.commands.ask import ask
from evo.commands.doctor import doctor
from evo.commands.errors import BAD_ENVIRONMENT, complain, guarded
from evo.commands.evaluate import evaluate
from evo.commands.evolve import evolve
from evo.commands.questions import questions
from evo.commands.runs import runs
from evo.commands.tell import tell
from evo.commands.trace import trace
from evo.commands.verify import verify
from evo.console import open_console

USAGE = """\
usage: evo COMMAND [arguments]

  evolve [key=value …] [-m]           search; -m sweeps over comma-separated values; resume=RUN goes on with a run
  verify KERNEL.cu [key=value …]      compile, check, time and score one kernel; --json; exit 0 viable, 1 not viable
  ask RUN [n=8] [key=value …]         write the next prompts to RUN/outbox; begins a run that is not there
  tell RUN [partial=true]             take in RUN/inbox and RUN/measured, and go on as far as they go
  evaluate RUN [backend.…=value …]    measure RUN/pending into RUN/measured, on any machine that holds the two
  questions list|add|lint|promote     the bank, and what its questions brought; add RUN "…?" asks a running search
  compare RUNS… [by=style]            statistics over runs, in groups; --csv FILE, --json FILE, --plot FILE.png|.svg
  report RUN [--out FILE]             what happened in a run, as one HTML file: report.html in its folder
  watch RUN [RUN…] [port=8765]        the same, live, for a browser on this machine, while the search goes on
  runs [FOLDER] [--json]              every run below a folder: its state, its best, what it has cost
  trace export|replay                 a run as one file, export RUN [--out FILE]; the same search from it, replay FILE
  doctor                              what this machine has, and what to install for what it lacks

`evo evolve --cfg job` shows every option with its value; the files in conf/ explain them.
Exit code 2: the environment or the command line is at fault, and the last line says how.
"""


def _compare(arguments: Sequence[str], console: Console) -> int:
    """Imported when it is called: scipy.stats takes most of a second, for which no other command needs to wait."""
    from evo.commands.compare import compare

    return compare(arguments, console)


def _report(arguments: Sequence[str], console: Console) -> int:
    """Imported when it is called: so is the template engine, which no other command needs."""
    from evo.commands.report import report

    return report(arguments, console)


def _watch(arguments: Sequence[str], console: Console) -> int:
    """Imported when it is called, for the same reason."""
    from evo.commands.watch import watch

    return watch(arguments, console)


Command = Callable[[Sequence[str], Console], int]
COMMANDS: Mapping[str, Command] = {
    "evolve": evolve, "verify": verify, "ask": ask, "tell": tell, "evaluate": evaluate, "questions": questions,
    "compare": _compare, "report": _report, "watch": _watch, "runs": runs, "trace": trace, "doctor": doctor,
}  # fmt: skip


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:], open_console(), open_console(stderr=True)))


def run(arguments: Sequence[str], out: Console, errors: Console) -> int:
    """Run one command; its exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # a run's log goes to its folder, an error to one line
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        out.print(USAGE, markup=False, highlight=False)
        return 0 if arguments else BAD_ENVIRONMENT
    command = COMMANDS.get(arguments[0])
    if command is None:
        complain(errors, f"{arguments[0]!r} is no command; expected one of {', '.join(COMMANDS)}")
        return BAD_ENVIRONMENT
    return guarded(lambda: command(arguments[1:], out), errors)
