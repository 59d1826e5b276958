"""Measures every kernel of a grid over a few knobs, for the recorded backend to answer from: searches without a device.

Beside the table TABLE.jsonl.xz it writes TABLE.cu, the seed kernel whose manifest offers the grid's knobs and values
alone, so that a search from it never leaves the table. A sitting ends after --seconds, or with the grid; the next one
measures the rest. The words at the end are overrides of `evo verify`: suite=…, backend=…, baseline=….
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.ending import ended
from benchmarks.grid import narrowed, read_grid, variants
from benchmarks.growing_table import GrowingTable
from benchmarks.record import argument_parser, print_table, write_record
from evo.choices import settle
from evo.judging import EvaluatesAll
from evo.settings import compose_config
from evo.workbench import judge_settings, open_evaluator
from fitness.fork_server import start_fork_server
from fitness.probe import Machine, probe_machine
from fitness.worker import PRELOAD

KERNEL = "kernels/seed/mma.cu"
GRID = (  # one knob or two of every layer: 324 kernels
    "WARPS_128=4,8", "BLOCK_N_64=32,64,128", "BLOCK_N_128=32,64,96", "STAGES_128=1,2,3", "Q_REGISTERS_TO=0,128",
    "RESCALE_SLACK=0,4,8",
)  # fmt: skip
REPEATS = 7
CANDIDATE_S = 2.0  # for timing one candidate, all its scenarios together
CHUNK = 16  # sources that are compiled together while the device measures


def measure(
    table: GrowingTable, sources: Sequence[str], evaluator: EvaluatesAll, *, seconds: float, chunk: int = CHUNK,
    clock: Callable[[], float] = time.monotonic,
) -> int:  # fmt: skip
    """Measure what the table lacks until the time is up; how many are still missing. The table is saved in any case."""
    end = clock() + seconds
    try:
        while (missing := table.missing(sources)) and clock() < end:
            evaluator.evaluate_all(missing[:chunk], on_done=lambda _place, evaluation: table.add(evaluation))
            print(f"{len(sources) - len(table.missing(sources))} of {len(sources)} measured", flush=True)
    finally:
        table.save(sources)
    return len(table.missing(sources))


@contextmanager
def open_judge(words: Sequence[str], seed: str, machine: Machine) -> Iterator[EvaluatesAll]:
    """The judge that the overrides make, with this benchmark's limits of time."""
    config = compose_config([f"judge.repeats={REPEATS}", *words])
    settled = settle(config, machine)
    settings = judge_settings(config, settled.backend)
    settings = replace(settings, scenario_budget_s=CANDIDATE_S / len(settled.suite.scenarios))
    with open_evaluator(config, settled, machine, trusted=[seed], settings=settings) as evaluator:
        yield evaluator


def main() -> int:
    """Measure, print, write."""
    parser = argument_parser(__doc__, "mma-grid.jsonl.xz")
    parser.add_argument("--kernel", type=Path, default=Path(KERNEL))
    parser.add_argument("--knobs", nargs="+", default=GRID, metavar="NAME=VALUE,VALUE")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further chunk after so many")
    parser.add_argument("--chunk", type=int, default=CHUNK)
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    seed = narrowed(arguments.kernel.read_bytes().decode("utf-8"), read_grid(arguments.knobs))
    sources, out = variants(seed), arguments.out
    seed_path = out.with_name(f"{_stem(out)}.cu")
    out.parent.mkdir(parents=True, exist_ok=True)
    table = GrowingTable(out)
    start_fork_server(PRELOAD)
    machine, start = probe_machine(), time.monotonic()
    with open_judge(arguments.words, seed, machine) as judge:
        seed_path.write_text(seed, encoding="utf-8")
        missing = measure(table, sources, judge, seconds=arguments.seconds, chunk=arguments.chunk)
    evaluations = table.evaluations(sources)
    counts = Counter(str(evaluation.status) for evaluation in evaluations)
    speeds = sorted(evaluation.geomean for evaluation in evaluations if evaluation.geomean is not None)
    figures = {
        "kernels": len(sources), "missing": missing, "statuses": dict(counts), "knobs": list(arguments.knobs),
        "suite": evaluations[0].suite if evaluations else None, "sitting_s": time.monotonic() - start,
        "best": speeds[-1] if speeds else None, "worst": speeds[0] if speeds else None,
    }  # fmt: skip
    print_table(("status", "kernels"), list(counts.items()))
    write_record(out.with_name(f"{_stem(out)}.json"), machine, figures, {})
    return 0


def _stem(table: Path) -> str:
    return table.name.split(".")[0]


if __name__ == "__main__":
    raise SystemExit(ended(main))
