"""What the search itself costs: mutations asked, answered, read and archived, with everything real but the judge.

The answerer is the offline one, the parents are kernels/seed/mma.cu with other knob values, and the judge makes up a
PASSED evaluation of the size that core26 has. Needs no GPU.
"""

import cProfile
import hashlib
import io
import math
import pstats
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.record import argument_parser, print_table, write_record
from evo.choices import Settled, settle
from evo.config import BackendConfig, BackendKind, Config, EvolutionConfig, StopConfig
from evo.console import RunConsole
from evo.loop import evolve
from evo.search import prepare_search
from evo.suites import load_suite
from evo.toolbox import build_bank
from fitness.evaluation import Environment, Evaluation, ScenarioTiming, Status
from fitness.evaluation_key import source_sha256
from fitness.probe import Machine, look_around
from population.archive import Archive, create_archive
from population.run_folder import RunFolder

CALLS = 11  # timed calls of each side, as on a GPU
LIMIT_S = 10.0  # for a thousand mutations


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a search took; processor seconds leave out what other programs take of a shared machine."""

    mutations: int
    seconds: float
    processor_s: float


class MadeUpJudge:
    """Gives every source a PASSED evaluation at once, with speedups that its hash decides."""

    def __init__(self) -> None:
        self._suite = load_suite("core26")
        self._environment = Environment(
            backend="cuda", device="made up", driver="", compiler="", baseline="fa3", baseline_version=""
        )

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """One evaluation a source; `on_done` hears of each."""
        evaluations = [self._evaluation(source) for source in sources]
        for place, evaluation in enumerate(evaluations):
            if on_done is not None:
                on_done(place, evaluation)
        return evaluations

    def _evaluation(self, source: str) -> Evaluation:
        digest = source_sha256(source)
        rng = random.Random(digest)
        timings = tuple(_timing(scenario.name, rng) for scenario in self._suite.scenarios)
        geomean = math.exp(sum(math.log(timing.speedup) for timing in timings) / len(timings))
        return Evaluation(
            key=hashlib.sha256(f"key of {digest}".encode()).hexdigest(), source_sha256=digest, suite=self._suite.name,
            status=Status.PASSED, reason="", environment=self._environment, timings=timings, geomean=geomean,
            geomean_low=geomean, geomean_high=geomean,
        )  # fmt: skip


def _timing(scenario: str, rng: random.Random) -> ScenarioTiming:
    candidate_ms = tuple(rng.uniform(1.0, 2.0) for _ in range(CALLS))
    baseline_ms = tuple(rng.uniform(1.0, 2.0) for _ in range(CALLS))
    speedup = baseline_ms[0] / candidate_ms[0]
    return ScenarioTiming(
        scenario=scenario, candidate_ms=candidate_ms, baseline_ms=baseline_ms, candidate_median_ms=candidate_ms[0],
        baseline_median_ms=baseline_ms[0], speedup=speedup, speedup_low=speedup, speedup_high=speedup, tflops=1.0,
        baseline_difference_max=0.0, baseline_difference_rms=0.0,
    )  # fmt: skip


def search(config: Config, settled: Settled, archive: Archive, folder: RunFolder) -> int:
    """The number of mutations that a whole search made."""
    prepared = prepare_search(config, settled, build_bank(config), archive, folder, note=print)
    console = RunConsole(console=Console(file=io.StringIO()), budget=None)
    state = prepared.state()
    evolve(state, prepared.toolbox(MadeUpJudge(), console))
    return state.next_birth


def main() -> None:
    """Run, print, write."""
    parser = argument_parser(__doc__, "loop-overhead.json")
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes; the profiler costs time too")
    arguments = parser.parse_args()
    machine = look_around()
    run = _measure(arguments.mutations, machine, cProfile.Profile() if arguments.profile else None)
    per_thousand = 1000 * run.seconds / run.mutations
    head = ("", "mutations", "s", "processor s", "s per 1000", "limit")
    print_table(head, [("loop", run.mutations, run.seconds, run.processor_s, per_thousand, LIMIT_S)])
    write_record(arguments.out, machine, {**asdict(run), "seconds_per_1000": per_thousand, "limit_s": LIMIT_S}, {})


def _measure(mutations: int, machine: Machine, profile: cProfile.Profile | None) -> Run:
    lambda_ = EvolutionConfig().lambda_
    config = Config(
        seeds=["mma"],
        backend=BackendConfig(kind=BackendKind.host),
        stop=StopConfig(generations=-(-mutations // lambda_)),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        with create_archive(folder) as archive:
            settled = settle(config, machine)
            start, processor_start = time.perf_counter(), time.process_time()
            with profile or nullcontext():
                mutations = search(config, settled, archive, folder)
            seconds, processor_s = time.perf_counter() - start, time.process_time() - processor_start
    if profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    return Run(mutations=mutations, seconds=seconds, processor_s=processor_s)


if __name__ == "__main__":
    main()
