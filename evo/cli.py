"""The one console script: finds the command that was named, and runs it."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from evo.commands.doctor import doctor
from evo.commands.errors import BAD_ENVIRONMENT, complain, guarded
from evo.commands.evolve import evolve
from evo.commands.verify import verify

USAGE = """\
usage: evo COMMAND [arguments]

  evolve [key=value …] [-m]           search; -m sweeps over comma-separated values; resume=RUN goes on with a run
  verify KERNEL.cu [key=value …]      compile, check, time and score one kernel; --json; exit 0 viable, 1 not viable
  doctor                              what this machine has, and what to install for what it lacks

`evo evolve --cfg job` shows every option with its value; the files in conf/ explain them.
Exit code 2: the environment or the command line is at fault, and the last line says how.
"""

Command = Callable[[Sequence[str], Console], int]
COMMANDS: Mapping[str, Command] = {"evolve": evolve, "verify": verify, "doctor": doctor}


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:], Console(), Console(stderr=True)))


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
