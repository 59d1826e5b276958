"""How far whole evaluations of one kernel lie apart: in one worker, one after the other, and from worker to worker.

An evaluation's interval tells what its own timed calls say. What is the same in all of those shows in another one
alone: in the same worker what each evaluation binds anew, in another what a process fixes for its lifetime.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.device import Judge, open_judge
from benchmarks.ending import ended, keeping
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.evaluation import Evaluation
from fitness.faults import CandidateFault
from fitness.probe import Machine
from fitness.scenario import Suite
from fitness.worker import BackendKind, WorkerSettings, open_worker

IN_ONE_WORKER = 2


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviations of the geometric mean's logarithm, and how often two intervals have nothing in common."""

    within: float  # of evaluations in one worker
    between: float  # of workers' means
    apart: float  # share of the pairs of evaluations by different workers

    @classmethod
    def of(cls, workers: Sequence[Sequence[Evaluation]]) -> "Spread":
        """Of two workers or more, with two evaluations or more each. Raises ValueError for fewer."""
        logs = [[math.log(_geomean(each)) for each in evaluations] for evaluations in workers]
        if len(logs) < 2 or min(map(len, logs)) < 2:
            raise ValueError(f"evaluations by worker: {list(map(len, logs))}; expected two of each of two or more")
        pairs = [
            (one, other)
            for place, some in enumerate(workers)
            for others in workers[place + 1 :]
            for one in some
            for other in others
        ]
        return cls(
            within=math.sqrt(statistics.mean(map(statistics.variance, logs))),
            between=statistics.stdev(map(statistics.mean, logs)),
            apart=statistics.mean(_have_nothing_in_common(*pair) for pair in pairs),
        )


def main() -> int:
    """Run, print, write: of a run that a fault ends the workers before it. Returns 0."""
    parser = argument_parser(__doc__, "evaluations-apart.json")
    parser.add_argument("kernel", type=Path, metavar="KERNEL.cu")
    parser.add_argument("--suite", default="core26")
    parser.add_argument("--workers", type=int, default=8, choices=range(2, 100), metavar="N")
    arguments = parser.parse_args()
    source, suite = arguments.kernel.read_bytes().decode("utf-8"), load_suite(arguments.suite)
    found: list[tuple[Evaluation, ...]] = []
    with open_judge() as judge:
        what = {"kernel": str(arguments.kernel), "suite": suite.name}
        versions = {"nvrtc": judge.compiler.version}
        with keeping(lambda cause: tell(found, what | {"ended_by": cause}, arguments.out, judge.machine, versions)):
            found.extend(_by_one_worker(judge, source, suite) for _ in range(arguments.workers))
    return 0


def _by_one_worker(judge: Judge, source: str, suite: Suite) -> tuple[Evaluation, ...]:
    with open_worker(WorkerSettings(backend=BackendKind.CUDA, baseline="fa3")) as worker:
        return tuple(_passed(replace(judge, worker=worker), source, suite))


def _passed(judge: Judge, source: str, suite: Suite) -> Iterator[Evaluation]:
    evaluator = judge.evaluator(suite)
    for _ in range(IN_ONE_WORKER):
        evaluation = evaluator.evaluate(source)
        if evaluation.geomean is None:
            raise CandidateFault(evaluation.status, evaluation.reason)
        yield evaluation


def tell(
    workers: Sequence[Sequence[Evaluation]], circumstances: Mapping[str, object], out: Path, machine: Machine,
    versions: Mapping[str, str],
) -> None:  # fmt: skip
    """Print and write the evaluations and their spread; nothing where there are too few for one."""
    if len(workers) < 2:
        return
    spread = Spread.of(workers)
    rows = [
        (str(number), each.geomean, each.geomean_low, each.geomean_high)
        for number, evaluations in enumerate(workers, 1)
        for each in evaluations
    ]
    print_table(("worker", "geomean", "low", "high"), rows)
    print_table(
        ("standard deviation, %", "in one worker", "of workers' means", "pairs with nothing in common"),
        [("", 100 * spread.within, 100 * spread.between, spread.apart)],
    )
    evaluations = [[_figures(each) for each in worker] for worker in workers]
    figures = {"within": spread.within, "between": spread.between, "apart": spread.apart, "workers": evaluations}
    write_record(out, machine, {**circumstances, **figures}, versions)


def _figures(evaluation: Evaluation) -> dict[str, object]:
    return {
        "geomean": evaluation.geomean, "low": evaluation.geomean_low, "high": evaluation.geomean_high,
        "speedups": {timing.scenario: timing.speedup for timing in evaluation.timings},
    }  # fmt: skip


def _have_nothing_in_common(one: Evaluation, other: Evaluation) -> bool:
    (low, high), (other_low, other_high) = _interval(one), _interval(other)
    return high < other_low or other_high < low


def _interval(evaluation: Evaluation) -> tuple[float, float]:
    if evaluation.geomean_low is None or evaluation.geomean_high is None:
        raise ValueError(f"an evaluation without an interval: {evaluation.status}")
    return evaluation.geomean_low, evaluation.geomean_high


def _geomean(evaluation: Evaluation) -> float:
    if evaluation.geomean is None:
        raise ValueError(f"an evaluation without a geometric mean: {evaluation.status}")
    return evaluation.geomean


if __name__ == "__main__":
    raise SystemExit(ended(main))
