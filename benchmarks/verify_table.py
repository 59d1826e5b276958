"""What `evo verify` says of several kernels, judged one after the other by one worker.

A kernel that ends in ":multi-head" is judged on those cells of core26 alone that have no grouped heads and one length,
of the head dims that it supports: the eighteen of FlashAttention-3's benchmark, or twelve without head_dim 256.
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.device import Judge, open_judge
from benchmarks.ending import ended, keeping
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.evaluation import Evaluation, Status
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest
from fitness.planner import plan_scenario
from fitness.probe import Machine
from fitness.scenario import Scenario, Suite, edge_scenarios

MULTI_HEAD = ":multi-head"
KERNELS = ("kernels/seed/mma.cu", f"tests/fitness/kernels/hopper/h1.cu{MULTI_HEAD}")


def main() -> int:
    """Run, print, write: of a run that a fault ends what was judged before it. Returns 0."""
    parser = argument_parser(__doc__, "verify-table.json")
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar=f"KERNEL.cu[{MULTI_HEAD}]")
    arguments = parser.parse_args()
    found: dict[str, Evaluation] = {}
    with open_judge() as judge:
        versions = {"nvrtc": judge.compiler.version}
        with keeping(lambda cause: tell(found, cause, arguments.out, judge.machine, versions)):
            for name in arguments.kernels:
                found[name] = _evaluate(judge, name)
    return 0


def tell(
    found: Mapping[str, Evaluation], cause: str, out: Path, machine: Machine, versions: Mapping[str, str]
) -> None:
    """Print and write what was judged, with what ended that early; nothing where there is nothing."""
    if not found:
        return
    for name, evaluation in found.items():
        times = [(t.scenario, t.baseline_median_ms, t.candidate_median_ms, t.speedup) for t in evaluation.timings]
        print_table((name, "fa3 ms", "candidate ms", "speedup"), times)
    head = ("kernel", "cells", "status", "geomean", "low", "high", "compile s", "check s", "time s")
    print_table(head, [_row(name, evaluation) for name, evaluation in found.items()])
    records = [{"kernel": name, **evaluation.to_json()} for name, evaluation in found.items()]
    write_record(out, machine, {"evaluations": records, "ended_by": cause}, versions)


def _evaluate(judge: Judge, name: str) -> Evaluation:
    source = Path(name.removesuffix(MULTI_HEAD)).read_bytes().decode("utf-8")
    suite = load_suite("core26")
    if name.endswith(MULTI_HEAD):
        suite = _multi_head(suite, source, judge.gpu.sm_count)
    evaluation = judge.evaluator(suite).evaluate(source)
    print(f"{name}: {evaluation.status} {evaluation.reason}")
    return evaluation


def _multi_head(suite: Suite, source: str, sm_count: int) -> Suite:
    cells = tuple(
        cell
        for cell in suite.scenarios
        if cell.heads == cell.kv_heads and cell.seqlen_q == cell.seqlen_k and _supports(source, cell, sm_count)
    )
    return Suite(name=f"{suite.name}, {len(cells)} multi-head cells", scenarios=cells, edges=edge_scenarios(cells))


def _supports(source: str, cell: Scenario, sm_count: int) -> bool:
    try:
        plan_scenario(read_manifest(source), cell, sm_count)
    except CandidateFault as fault:
        if fault.status is Status.UNSUPPORTED:
            return False
        raise
    return True


def _row(name: str, evaluation: Evaluation) -> tuple[object, ...]:
    score = (evaluation.geomean, evaluation.geomean_low, evaluation.geomean_high)
    seconds = (evaluation.compile_s, evaluation.check_s, evaluation.time_s)
    return (name, len(evaluation.timings), str(evaluation.status), *score, *seconds)


if __name__ == "__main__":
    raise SystemExit(ended(main))
