"""What one evaluation costs on core26: compile, check and time of a right candidate, of wrong ones, of a crash."""

import cProfile
import pstats
import random
import statistics
import time
from operator import itemgetter
from pathlib import Path

from benchmarks.check_parts import check_parts
from benchmarks.device import PRELOAD, Judge, open_judge
from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.data import seed_folder
from evo.suites import load_suite
from fitness.correctness import check_suite
from fitness.evaluation import Evaluation
from fitness.plan import Build, SuitePlan
from fitness.scenario import Suite
from fitness.watch import Watch

SCALE = "params.softmax_scale"
WRONG_EVERYWHERE = f"(1.5f * {SCALE})"
WRONG_LAST = f"((params.seqlen_k >= 16384 ? 1.5f : 1.0f) * {SCALE})"
CRASH = f"(*reinterpret_cast<volatile const float*>(16) + {SCALE})"
RESTARTS = 3


def main() -> int:
    """Run, print, write. Returns 0."""
    parser = argument_parser(__doc__, "evaluation-cost.json")
    parser.add_argument("--preload", nargs="*", default=PRELOAD, help="modules that the fork server imports too")
    parser.add_argument("--profile", action="store_true", help="print a profile of the correctness stage too")
    arguments = parser.parse_args()
    source = (seed_folder() / "mma.cu").read_text(encoding="utf-8")
    suite = load_suite("core26")
    with open_judge(preload=arguments.preload) as judge:
        costs = _costs(judge, source, suite)
        restarts = _restarts(judge, source, suite)
        versions = {"nvrtc": judge.compiler.version, "fa3": judge.worker.baseline(suite).version}
        judge.worker.close()  # its memory goes to what is measured in this process
        plan, binaries = judge.built(source, suite)
        parts, by_scenario = _parts(judge, plan, binaries, profile=arguments.profile)
    print_table(("part of the check", "s"), sorted(parts.items(), key=itemgetter(1), reverse=True))
    print_table(("restart after a crash, s", "median", "max"), [("", statistics.median(restarts), max(restarts))])
    figures = {
        "suite": suite.name, "kernel": "kernels/seed/mma.cu", "preload": list(arguments.preload), "evaluations": costs,
        "restarts_s": restarts, "check_parts_s": parts, "check_scenarios_s": by_scenario,
    }  # fmt: skip
    write_record(arguments.out, judge.machine, figures, versions)
    return 0


def _costs(judge: Judge, source: str, suite: Suite) -> list[dict[str, object]]:
    evaluator = judge.evaluator(suite)
    cases = {
        "right, nothing compiled before": source,
        "right, compiled before": source,
        "right, once more": source,
        "wrong everywhere": _changed(source, WRONG_EVERYWHERE),
        "wrong from 16384 keys on": _changed(source, WRONG_LAST),
    }
    costs = []
    for what, text in cases.items():
        start = time.perf_counter()
        evaluation = evaluator.evaluate(text)
        costs.append(_cost(what, evaluation, time.perf_counter() - start))
    print_table(tuple(costs[0]), [tuple(cost.values()) for cost in costs])
    return costs


def _cost(what: str, evaluation: Evaluation, wall_s: float) -> dict[str, object]:
    return {
        "candidate": what, "status": str(evaluation.status), "checks": len(evaluation.checks),
        "compile_s": evaluation.compile_s, "check_s": evaluation.check_s, "time_s": evaluation.time_s, "wall_s": wall_s,
    }  # fmt: skip


def _restarts(judge: Judge, source: str, suite: Suite) -> list[float]:
    """Seconds from the end of a process in which a candidate crashed until a fresh one answers."""
    evaluator, seconds = judge.evaluator(suite), []
    for _ in range(RESTARTS):
        crashed = evaluator.evaluate(_changed(source, CRASH))
        judge.worker.close()  # a verdict is kept once a fresh process has opened the device: have another one do so
        start = time.perf_counter()
        judge.worker.baseline(suite)
        seconds.append(time.perf_counter() - start)
        print(f"{crashed.status}: {crashed.reason}")
    return seconds


def _changed(source: str, scale: str) -> str:
    if SCALE not in source:
        raise ValueError(f"the kernel does not read {SCALE}, by which this benchmark breaks it")
    return source.replace(SCALE, scale)


def _parts(
    judge: Judge, plan: SuitePlan, binaries: dict[Build, Path], *, profile: bool
) -> tuple[dict[str, float], dict[str, float]]:
    from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

    backend = CudaBackend(device_index=0)
    check_parts(plan, binaries, backend, judge.settings)  # what is loaded and allocated once
    if profile:
        watch = Watch(lambda _step, _deadline_s: None, judge.settings)
        with cProfile.Profile() as profiler:
            for _ in check_suite(plan, binaries, backend, judge.settings, random.Random(0), watch):
                pass
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
    return check_parts(plan, binaries, backend, judge.settings)


if __name__ == "__main__":
    raise SystemExit(ended(main))
