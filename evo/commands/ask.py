"""`evo ask`: put the next questions of a run into files, for any model or person to answer."""

import re
from collections.abc import Sequence

from rich.console import Console

from evo import mailbox_run
from evo.commands.next_step import show_waiting
from evo.settings import ConfigError

_COUNT = re.compile(r"[1-9]\d{0,5}", re.ASCII)


def ask(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 where the run goes on, 1 where its search is over. Raises ConfigError for a bad command line."""
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        raise ConfigError("ask: no run named; expected evo ask RUN [n=8] [key=value …]")
    counts = [word for word in arguments[1:] if word.startswith("n=")]
    words = [word for word in arguments[1:] if not word.startswith("n=")]
    for word in words:
        if word.startswith("-") or "=" not in word:
            raise ConfigError(f"ask: {word!r} is no option; expected key=value")
    count = _count(counts[-1]) if counts else None
    waiting = mailbox_run.ask(arguments[0], words, count=count, console=console)
    show_waiting(waiting, console)
    return 1 if waiting.ended else 0


def _count(word: str) -> int:
    value = word.partition("=")[2]
    if not _COUNT.fullmatch(value):
        raise ConfigError(f"ask: n={value}: expected a whole number of at least 1, as in n=8")
    return int(value)
