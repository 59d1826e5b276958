"""`evo report`: a run as one HTML file."""

import time
from collections.abc import Sequence

from rich.console import Console

from evo.console import say
from evo.report.page import report_page
from evo.report.pictures import require_pictures
from evo.report.reading import read_account
from evo.run_options import open_run, run_and_file
from evo.settings import ConfigError
from population.atomic_file import write_atomically

_USAGE = "expected evo report RUN [--out FILE]"


def report(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0. Raises ConfigError for a bad command line, and RunFault for a run that cannot be read."""
    name, out = run_and_file(arguments, "report", _USAGE)
    require_pictures()
    run = open_run(name)
    page = report_page(read_account(run, now=time.time()))
    path = out or run.report
    try:
        write_atomically(path, page.html)
    except (OSError, ValueError) as error:  # ValueError: a path without a name
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be written ({why}); name another file or make room") from error
    say(console, f"written: {path}")
    return 0
