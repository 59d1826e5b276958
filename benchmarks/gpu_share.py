"""Which part of a search's wall time its GPUs are at work, and evaluations an hour, on one GPU and on all.

Each case is a search with the offline answerer from an empty build cache. A worker is at work while it measures a
candidate; the wall time runs from the first such moment after the seed to the last. Without a GPU the host's one worker
is measured, which compiling takes turns with.
"""

import io
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.choices import Settled, settle
from evo.config import BackendKind, Config, EvolutionKind
from evo.console import RunConsole
from evo.loop import evolve
from evo.search import prepare_search
from evo.settings import compose_config
from evo.steady import evolve_steadily
from evo.toolbox import build_bank
from evo.workbench import open_evaluator
from fitness.fork_server import start_fork_server
from fitness.measure import Job, Measured
from fitness.pool import MeasuringWorker
from fitness.probe import Machine, probe_machine
from fitness.scenario import Suite
from fitness.worker import PRELOAD, BaselineFacts
from population.archive import create_archive
from population.run_folder import RunFolder

TARGET = 0.90
SEEDS = 1  # measured before anything is asked


@dataclass(frozen=True, kw_only=True)
class Interval:
    """When a worker was at work on one candidate, in seconds of a common clock."""

    worker: int
    start_s: float
    end_s: float


@dataclass(kw_only=True)
class Log:
    """Every worker's intervals."""

    intervals: list[Interval] = field(default_factory=list)
    workers: int = 0

    def watch(self, worker: MeasuringWorker) -> MeasuringWorker:
        """The worker, which from now on is timed."""
        self.workers += 1
        return _Timed(worker, self, self.workers - 1)


class _Timed:
    """Stands in for a worker, and writes down when it is at work."""

    def __init__(self, worker: MeasuringWorker, log: Log, place: int) -> None:
        self._worker = worker
        self._log = log
        self._place = place

    def measure(self, job: Job) -> Measured:
        """See Worker."""
        start_s = time.monotonic()
        measured = self._worker.measure(job)
        self._log.intervals.append(Interval(worker=self._place, start_s=start_s, end_s=time.monotonic()))
        return measured

    def baseline(self, suite: Suite) -> BaselineFacts:
        """See Worker."""
        return self._worker.baseline(suite)

    def abort(self) -> None:
        """See Worker."""
        self._worker.abort()

    def close(self) -> None:
        """See Worker."""
        self._worker.close()


def shares(log: Log) -> dict[str, object]:
    """The share of the wall time that all workers were at work, each one's, and evaluations an hour."""
    measured = sorted(log.intervals, key=lambda each: each.start_s)[SEEDS:]
    start_s, end_s = measured[0].start_s, max(each.end_s for each in measured)
    wall_s = end_s - start_s
    busy_s = [
        sum(each.end_s - each.start_s for each in measured if each.worker == place) for place in range(log.workers)
    ]
    return {
        "workers": log.workers, "evaluations": len(measured), "wall_s": wall_s, "busy_s": busy_s,
        "share": sum(busy_s) / (log.workers * wall_s), "evaluations_an_hour": 3600 * len(measured) / wall_s,
    }  # fmt: skip


def search(config: Config, settled: Settled, machine: Machine, root: Path) -> Log:
    """When the workers of a whole search were at work."""
    log = Log()
    folder = RunFolder(root)
    with (
        create_archive(folder) as archive,
        open_evaluator(config, settled, machine, watched=log.watch) as evaluator,
    ):
        prepared = prepare_search(config, settled, build_bank(config), archive, folder, note=print)
        console = RunConsole(console=Console(file=io.StringIO()), budget=None)
        state, toolbox = prepared.state(), prepared.toolbox(evaluator, console)
        if config.evolution.kind is EvolutionKind.steady:
            stop = evolve_steadily(state, toolbox, config.evolution.lambda_)
        else:
            stop = evolve(state, toolbox)
    print(f"{config.evolution.kind.value}: {stop.reason}")
    return log


def measure(words: Sequence[str], evolution: str, devices: Sequence[int], machine: Machine) -> dict[str, object]:
    """The shares of one case."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "run")
        root.mkdir()
        pool = [f"pool.devices=[{','.join(map(str, devices))}]"] if devices else []
        config = compose_config([*words, *pool, f"evolution={evolution}", "audit=false", f"backend.cache={name}/cache"])
        settled = settle(config, machine)
        config = replace(config, seeds=list(settled.seeds))
        found = shares(search(config, settled, machine, root))
        return {"evolution": evolution, "devices": list(devices), "suite": settled.suite.name, **found}


def cases(machine: Machine, backend: BackendKind) -> list[tuple[int, ...]]:
    """The devices of each case: the first GPU, all of them; the host where there is none."""
    if not machine.gpus or backend is BackendKind.host:
        return [()]
    everything = tuple(gpu.index for gpu in machine.gpus)
    return [everything[:1], everything] if len(everything) > 1 else [everything]


def main() -> int:
    """Run, print, write. Returns 0."""
    parser = argument_parser(__doc__, "gpu-share.json")
    parser.add_argument("--evaluations", type=int, default=24, help="of each case, the seed's besides")
    parser.add_argument("--evolution", nargs="+", default=["generational", "steady"])
    parser.add_argument("words", nargs="*", help="as on `evo evolve`, as in suite=core26")
    arguments = parser.parse_args()
    start_fork_server(PRELOAD)
    machine = probe_machine()
    words = [*arguments.words, f"stop.evaluations={arguments.evaluations + SEEDS}"]
    devices = cases(machine, compose_config(arguments.words).backend.kind)
    rows = [measure(words, evolution, each, machine) for evolution in arguments.evolution for each in devices]
    head = ("search", "workers", "evaluations", "wall s", "share", "evaluations/h")
    print_table(head, [_cells(row) for row in rows])
    write_record(arguments.out, machine, {"target_share": TARGET, "rows": rows}, {})
    return 0


def _cells(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in
                 ("evolution", "workers", "evaluations", "wall_s", "share", "evaluations_an_hour"))  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(ended(main))
