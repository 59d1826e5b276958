"""What `evo report` takes for a large run, a browser to open that report, and `evo compare` for many runs.

The runs are made up. Needs no GPU; without chromium and its driver the opening is left out.
"""

import io
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.bred_run import breed
from benchmarks.record import argument_parser, print_table, write_record
from evo.commands.compare import compare
from evo.commands.report import report
from fitness.probe import look_around
from population.run_folder import create_run_folder

REPORT_LIMIT_S, REPORT_LIMIT_BYTES = 10.0, 3_000_000
COMPARE_LIMIT_S = 20.0
OPEN_LIMIT_S = 2.0
BROWSER = ("chromium", "chromedriver")
STYLES = ("question", "imperative", "information")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One command; processor seconds leave out what other programs take of a shared machine."""

    what: str
    seconds: float
    limit_s: float
    processor_s: float | None = None
    written_bytes: int | None = None
    limit_bytes: int | None = None


def main() -> None:
    """Make the runs, run, print, write."""
    parser = argument_parser(__doc__, "report.json")
    parser.add_argument("--individuals", type=int, default=5000, help="of the run that is reported")
    parser.add_argument("--runs", type=int, default=60, help="that are compared")
    parser.add_argument("--evaluations", type=int, default=100, help="of each run that is compared")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        figures = [_report(root, arguments.individuals)]
        if all(map(shutil.which, BROWSER)):
            figures.append(_open(root / "large" / "report.html"))
        figures.append(_compare(root, arguments.runs, arguments.evaluations))
    rows = [tuple("" if value is None else value for value in asdict(each).values()) for each in figures]
    print_table(("", "s", "limit s", "processor s", "bytes", "limit"), rows)
    write_record(arguments.out, look_around(), {"commands": [asdict(each) for each in figures]}, {})


def _report(root: Path, individuals: int) -> Taken:
    folder = create_run_folder(root, "large")
    breed(folder, individuals=individuals)
    words = [str(folder.path)]
    what = f"report of {individuals} individuals"
    return _timed(what, report, words, folder.report, REPORT_LIMIT_S, REPORT_LIMIT_BYTES)


def _open(page: Path) -> Taken:
    """From asking for the page to the end of its loading, as the browser times it."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    program, driver = (str(shutil.which(name)) for name in BROWSER)
    options = ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(word)
    with Chrome(options=options, service=ChromeService(driver)) as browser:
        browser.get(page.as_uri())
        milliseconds = browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    return Taken(what="opening it in chromium", seconds=milliseconds / 1000, limit_s=OPEN_LIMIT_S)


def _compare(root: Path, runs: int, evaluations: int) -> Taken:
    for place in range(runs):
        style = STYLES[place % len(STYLES)]
        folder = create_run_folder(root / "many", f"{style}-{place // len(STYLES)}")
        breed(folder, individuals=evaluations, style=style, rng_seed=place)
    written = root / "compared.json"
    words = [str(root / "many"), "--json", str(written)]
    what = f"compare of {runs} runs of {evaluations} evaluations"
    return _timed(what, compare, words, written, COMPARE_LIMIT_S, None)


def _timed(
    what: str, command: Callable[[Sequence[str], Console], int], words: Sequence[str], written: Path, limit_s: float,
    limit_bytes: int | None,
) -> Taken:  # fmt: skip
    start, processor_start = time.perf_counter(), time.process_time()
    command(words, Console(file=io.StringIO()))
    seconds, processor_s = time.perf_counter() - start, time.process_time() - processor_start
    return Taken(
        what=what, seconds=seconds, processor_s=processor_s, limit_s=limit_s, written_bytes=written.stat().st_size,
        limit_bytes=limit_bytes,
    )  # fmt: skip


if __name__ == "__main__":
    main()
