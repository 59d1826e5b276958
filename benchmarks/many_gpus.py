"""Which part of one search would be the bottleneck on many GPUs: a simulation from measured costs. Needs no GPU.

Candidates go round: the loop's one process asks and records (one at a time), an answerer replies, cores compile, a GPU
checks and times. As many are under way as keep every GPU busy with one more waiting, plus those at the answerer.
Each service time is drawn from a gamma distribution of shape 4 around its mean.
"""

import heapq
import random
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.record import argument_parser, print_table, write_record
from evo.data import include_folder, seed_folder
from evo.suites import load_suite
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.fork_server import start_fork_server
from fitness.manifest import read_manifest
from fitness.planner import plan_suite
from fitness.probe import look_around

LOOP_S = 0.0080  # docs/results/loop-overhead.json: 8.04 s for 1000 mutations, the archive's writes among them
GPU_S = 5.2  # docs/results/h200-offline-search.json: checks and timing on core26, the medians of its first 38
ANSWER_S = 60.0  # an assumption: a reply of some thousand tokens
CORES_A_GPU = 16  # of the machines that the GPU figures are from
GPUS = (1, 8, 64, 256, 512, 1000, 2000)
SHAPE = 4.0
H200_SMS = 132


@dataclass(kw_only=True)
class Station:
    """Servers that take one candidate each, and who waits for them."""

    name: str
    servers: int
    mean_s: float
    busy: int = 0
    worked_s: float = 0.0
    waiting: deque[int] = field(default_factory=deque)


def simulate(stations: Sequence[Station], *, under_way: int, finished: int, rng: random.Random) -> float:
    """Seconds until so many candidates have gone through all stations, which work the while in parallel."""
    events: list[tuple[float, int, int]] = []  # time, candidate, its station
    now, done = 0.0, 0

    def start(place: int) -> None:
        station = stations[place]
        while station.waiting and station.busy < station.servers:
            service_s = rng.gammavariate(SHAPE, station.mean_s / SHAPE)
            station.busy += 1
            station.worked_s += service_s
            heapq.heappush(events, (now + service_s, station.waiting.popleft(), place))

    stations[0].waiting.extend(range(under_way))
    start(0)
    while done < finished:
        now, candidate, place = heapq.heappop(events)
        stations[place].busy -= 1
        following = (place + 1) % len(stations)
        done += following == 0
        stations[following].waiting.append(candidate)
        start(following)
        start(place)
    return now


def outcome(gpus: int, costs: Mapping[str, float], answers: int | None) -> dict[str, object]:
    """What one search comes to on so many GPUs; `answers` at a time, or as many as there is use for."""
    wanted = max(1, round(gpus * costs["answer_s"] / costs["gpu_s"] * 1.2))
    stations = (
        Station(name="loop and archive", servers=1, mean_s=costs["loop_s"]),
        Station(name="answerer", servers=answers or wanted, mean_s=costs["answer_s"]),
        Station(name="compile cores", servers=CORES_A_GPU * gpus, mean_s=costs["compile_core_s"]),
        Station(name="GPUs", servers=gpus, mean_s=costs["gpu_s"]),
    )
    under_way = 2 * gpus + (answers or wanted)
    finished = 20 * under_way
    seconds = simulate(stations, under_way=under_way, finished=finished, rng=random.Random(gpus))
    used = {station.name: min(1.0, station.worked_s / (station.servers * seconds)) for station in stations}
    return {
        "gpus": gpus, "answers_at_a_time": answers or wanted, "candidates_a_second": finished / seconds,
        "used": used, "bottleneck": max(used, key=lambda name: used[name]),
    }  # fmt: skip


def compile_core_seconds(cache: Path) -> float:
    """Seconds of one core for all builds of kernels/seed/mma.cu on core26."""
    source = (seed_folder() / "mma.cu").read_text(encoding="utf-8")
    plan = plan_suite(read_manifest(source), load_suite("core26"), H200_SMS)
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=include_folder(), cache=BuildCache(cache), processes=1, timeout_s=120.0,
        memory_bytes=8 << 30,
    )  # fmt: skip
    try:
        compiler.compile(source.replace("*/", "*/\n// first", 1), plan.builds[:1])  # the process starts
        start = time.perf_counter()
        compiler.compile(source, plan.builds)
        return time.perf_counter() - start
    finally:
        compiler.close()


def main() -> None:
    """Simulate, print, write."""
    parser = argument_parser(__doc__, "many-gpus.json")
    parser.add_argument("--answer-s", type=float, default=ANSWER_S)
    arguments = parser.parse_args()
    start_fork_server()
    with tempfile.TemporaryDirectory() as name:
        compile_s = compile_core_seconds(Path(name))
    costs = {"loop_s": LOOP_S, "answer_s": arguments.answer_s, "compile_core_s": compile_s, "gpu_s": GPU_S}
    rows = [outcome(gpus, costs, answers) for answers in (None, 8) for gpus in GPUS]
    head = ("GPUs", "answers at a time", "candidates/s", "loop", "answerer", "cores", "GPUs used", "bottleneck")
    print_table(head, [_cells(row) for row in rows])
    write_record(arguments.out, look_around(), {"costs": costs, "cores_a_gpu": CORES_A_GPU, "rows": rows}, {})


def _cells(row: Mapping[str, object]) -> tuple[object, ...]:
    used = row["used"]
    assert isinstance(used, dict)
    gpus, answers, rate = str(row["gpus"]), row["answers_at_a_time"], row["candidates_a_second"]
    return (gpus, answers, rate, *used.values(), row["bottleneck"])


if __name__ == "__main__":
    main()
