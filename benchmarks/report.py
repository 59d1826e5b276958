"""What `evo report` takes for a large run, and `evo compare` for many runs. The runs are made up; needs no GPU."""

import io
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
STYLES = ("question", "imperative", "information")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One command; processor seconds leave out what other programs take of a shared machine."""

    what: str
    seconds: float
    processor_s: float
    limit_s: float
    written_bytes: int
    limit_bytes: int | None


def main() -> None:
    """Make the runs, run, print, write."""
    parser = argument_parser(__doc__, "report.json")
    parser.add_argument("--individuals", type=int, default=5000, help="of the run that is reported")
    parser.add_argument("--runs", type=int, default=60, help="that are compared")
    parser.add_argument("--evaluations", type=int, default=100, help="of each run that is compared")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        figures = [_report(root, arguments.individuals), _compare(root, arguments.runs, arguments.evaluations)]
    rows = [tuple(asdict(each).values()) for each in figures]
    print_table(("", "s", "processor s", "limit s", "bytes", "limit"), rows)
    write_record(arguments.out, look_around(), {"commands": [asdict(each) for each in figures]}, {})


def _report(root: Path, individuals: int) -> Taken:
    folder = create_run_folder(root, "large")
    breed(folder, individuals=individuals)
    words = [str(folder.path)]
    what = f"report of {individuals} individuals"
    return _timed(what, report, words, folder.report, REPORT_LIMIT_S, REPORT_LIMIT_BYTES)


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
