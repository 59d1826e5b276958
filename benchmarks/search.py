"""Compares ways to search on a table of measurements: selection × the questions' sampling, over many seeds, no device.

A table is what `benchmarks/variant_table.py` or `evo table` writes; the search starts from the seed kernel beside it,
TABLE.cu, and its answerer turns knobs, so no candidate lies outside a table of the whole grid. For each strategy: the
best geometric mean after so many evaluations as a share of the table's best, and how many evaluations it took to come
within 1 % of that; means with 95 % bootstrap intervals over the seeds, and the differences from the first strategy
seed by seed. Beside them what as many kernels come to that are drawn blindly.
"""

import io
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.choices import settle
from evo.config import SamplingKind, SelectionKind
from evo.console import RunConsole
from evo.loop import evolve
from evo.search import prepare_search
from evo.settings import compose_config
from evo.toolbox import build_bank
from fitness.backends.recorded import RecordedEvaluator, load_table
from fitness.probe import Machine, look_around
from population.archive import create_archive
from population.run_folder import RunFolder

NEAR = 0.99  # of the table's best
RESAMPLES = 9999
MEMORY = Path("/dev/shm")  # where a search's archive costs no disk


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How parents are chosen and questions drawn."""

    selection: SelectionKind
    sampling: SamplingKind

    @property
    def name(self) -> str:
        """As the record has it."""
        return f"{self.selection.value}, {self.sampling.value}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One search."""

    table: Path
    kernel: Path
    strategy: Strategy
    rng_seed: int
    evaluations: int


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


STRATEGIES = tuple(
    Strategy(selection=selection, sampling=sampling)
    for selection, sampling in itertools.product(SelectionKind, SamplingKind)
)


@cache
def _evaluator(table: Path) -> RecordedEvaluator:
    return RecordedEvaluator(load_table(table))


@cache
def _machine() -> Machine:
    return look_around()


def search(task: Task) -> list[float]:
    """The best geometric mean after each evaluation, the last one repeated where the search ended before its budget.

    Raises ValueError where a candidate lies outside the table.
    """
    config = compose_config(
        [
            "backend=recorded", f"backend.table='{task.table}'", f"seeds=['{task.kernel}']",
            f"rng_seed={task.rng_seed}", f"suite={load_table_suite(task.table)}",
            f"baseline={_evaluator(task.table).environment.baseline}",
            f"selection={task.strategy.selection.value}",
            f"questions.sampling={task.strategy.sampling.value}", f"stop.evaluations={task.evaluations}",
            "stop.stall_evaluations=null", "stop.barren_generations=50",
        ]
    )  # fmt: skip
    settled = settle(config, _machine())
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = RunFolder(Path(name))
        with create_archive(folder) as archive:
            prepared = prepare_search(config, settled, build_bank(config), archive, folder, note=lambda _: None)
            console = RunConsole(console=Console(file=io.StringIO()), budget=None)
            state = prepared.state()
            stop = evolve(state, prepared.toolbox(_evaluator(task.table), console))
            result = prepared.result(state, stop)
    if result["failures"].get("UNSUPPORTED"):
        outside = result["failures"]["UNSUPPORTED"]
        raise ValueError(f"{outside} candidates lie outside {task.table}: it is no whole grid")
    history: list[float] = result["history"]
    return history + [history[-1]] * (task.evaluations - len(history))


def load_table_suite(table: Path) -> str:
    """The suite that a table was measured on."""
    return _evaluator(table).evaluate("").suite


def bootstrap(values: Sequence[float], rng: np.random.Generator) -> Interval:
    """The mean and its percentile interval (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13)."""
    drawn = rng.choice(np.asarray(values, dtype=float), size=(RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(mean=statistics.fmean(values), low=float(low), high=float(high))


def arrival(history: Sequence[float], target: float) -> int:
    """The number of the evaluation that first reached the target; one more than there are where none did."""
    return next((place for place, best in enumerate(history, start=1) if best >= target), len(history) + 1)


def blind(speeds: Sequence[float], draws: int) -> dict[str, float]:
    """The expected best of so many different kernels drawn blindly, as a share of the best, and how likely it is near.

    Exact: the i-th slowest is the best of n of N drawn with probability C(i - 1, n - 1) / C(N, n).
    """
    ranked, sets = sorted(speeds), math.comb(len(speeds), draws)
    chances = [math.comb(slower, draws - 1) / sets for slower in range(len(ranked))]
    share = sum(chance * speed for chance, speed in zip(chances, ranked, strict=True)) / ranked[-1]
    near = sum(chance for chance, speed in zip(chances, ranked, strict=True) if speed >= NEAR * ranked[-1])
    return {"share_of_best": share, "arrives": near}


def main() -> int:
    """Search, print, write."""
    parser = argument_parser(__doc__, "search-strategies.json")
    parser.add_argument("table", nargs="?", type=Path, default=Path("docs/results/tiled-grid.jsonl.xz"))
    parser.add_argument("--kernel", type=Path, help="the seed kernel; by default TABLE.cu")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    table: Path = arguments.table
    kernel = arguments.kernel or table.with_name(f"{table.name.split('.')[0]}.cu")
    evaluations = load_table(table)
    speeds = [evaluation.geomean or 0.0 for evaluation in evaluations]
    best, drawn = max(speeds), blind(speeds, min(arguments.evaluations, len(speeds)))
    tasks = [
        Task(table=table, kernel=kernel, strategy=strategy, rng_seed=rng_seed, evaluations=arguments.evaluations)
        for strategy in STRATEGIES
        for rng_seed in range(arguments.seeds)
    ]
    start = time.perf_counter()
    with ProcessPoolExecutor(arguments.processes) as pool:
        histories = list(pool.map(search, tasks, chunksize=4))
    seconds = time.perf_counter() - start
    rows = summarise(histories, best, arguments.seeds)
    head = ("strategy", "share of the best", "low", "high", "evaluations to 99 %", "low", "high", "arrived")
    print_table(head, [_cells(row) for row in rows])
    print(f"drawn blindly: {drawn['share_of_best']:.4f} of the best, {drawn['arrives']:.0%} arrive")
    where = evaluations[0].environment
    figures = {
        "table": table.name, "measured_on": where.device, "suite": evaluations[0].suite, "kernels": len(evaluations),
        "best": best, "seeds": arguments.seeds, "evaluations": arguments.evaluations, "seconds": seconds,
        "strategies": rows, "drawn_blindly": drawn,
    }  # fmt: skip
    write_record(arguments.out, _machine(), figures, {})
    return 0


def summarise(histories: Sequence[Sequence[float]], best: float, seeds: int) -> list[dict[str, object]]:
    """A record for each strategy; histories come strategy by strategy, and in each seed by seed."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    first: list[float] = []
    for place, strategy in enumerate(STRATEGIES):
        own = histories[place * seeds : (place + 1) * seeds]
        shares = [history[-1] / best for history in own]
        arrivals = [arrival(history, NEAR * best) for history in own]
        first = first or shares
        rows.append(
            {
                "strategy": strategy.name,
                "share_of_best": vars(bootstrap(shares, rng)),
                "evaluations_to_near": vars(bootstrap(arrivals, rng)),  # not there yet counts as one after the last
                "arrived": sum(1 for each, history in zip(arrivals, own, strict=True) if each <= len(history)),
                "minus_first": vars(bootstrap([own - its for own, its in zip(shares, first, strict=True)], rng)),
            }
        )
    return rows


def _cells(row: dict[str, object]) -> tuple[object, ...]:
    share, near = row["share_of_best"], row["evaluations_to_near"]
    assert isinstance(share, dict)
    assert isinstance(near, dict)
    return (row["strategy"], *share.values(), *near.values(), row["arrived"])


if __name__ == "__main__":
    raise SystemExit(ended(main))
