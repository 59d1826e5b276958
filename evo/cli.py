"""The one console script: finds the command that was named, and runs it."""

import importlib
import importlib.metadata
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evo.help import help_of_all, help_text
from evo.help_pages import HELP_PAGES

if TYPE_CHECKING:
    from rich.console import Console

COMMANDS = tuple(HELP_PAGES)
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
        out.print(help_of_all(HELP_PAGES), markup=False, highlight=False, soft_wrap=True)
        return 0 if arguments else BAD_COMMAND_LINE
    if arguments[0] == "--version":
        out.print(f"evo {_version()}", markup=False, highlight=False)
        return 0
    from evo.commands.errors import complain, guarded

    name = arguments[0]
    if name not in COMMANDS:
        complain(errors, f"{name!r} is no command; expected one of {', '.join(COMMANDS)}")
        return BAD_COMMAND_LINE
    if _HELP.intersection(arguments[1:]):
        out.print(help_text(name, HELP_PAGES[name]), markup=False, highlight=False, soft_wrap=True)
        return 0
    return guarded(lambda: _command(name)(arguments[1:], out), errors)


def _version() -> str:
    try:
        return importlib.metadata.version("question-evo")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def _command(name: str) -> "Callable[[Sequence[str], Console], int]":
    """Imported when it is called: no command needs to wait for what another one imports."""
    command: Callable[[Sequence[str], Console], int] = getattr(importlib.import_module(f"evo.commands.{name}"), name)
    return command
