"""Whether FA3's own output passes the gate: every cell of core26, every distribution, many seeds, each setting.

For each cell the nearest that any of its outputs came to a bound, as a share of that bound.
"""

from collections.abc import Iterator, Sequence

import torch

from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.backends.backend import Tensors
from fitness.baselines.fa3 import Fa3Baseline
from fitness.evaluation import ScenarioCheck
from fitness.gate import Case, judge
from fitness.inputs import draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.probe import look_around
from fitness.reference import compute_reference
from fitness.scenario import Scenario

RULES = (
    ("max_error", "max_error_bound"),
    ("relative_rms_error", "relative_rms_bound"),
    ("mean_error", "mean_error_bound"),
    ("row_error", "row_error_bound"),
)


def main() -> None:
    """Run, print, write."""
    parser = argument_parser(__doc__, "baseline-gate.json")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    suite, baseline = load_suite("core26"), Fa3Baseline()
    cells: list[dict[str, object]] = []
    failures: list[str] = []
    for cell in suite.scenarios:
        checks = list(_checks(baseline, cell, arguments.seeds))
        failed = [check for check in checks if not check.passed]
        failures += [f"{each.scenario}, {each.distribution}, seed {each.input_seed}: {each.reason}" for each in failed]
        cells.append({"cell": cell.name, "outputs": len(checks), "failed": len(failed), **_nearest(checks)})
    print_table(tuple(cells[0]), [tuple(cell.values()) for cell in cells])
    for failure in failures:
        print(failure)
    figures = {"suite": suite.name, "seeds": arguments.seeds, "cells": cells, "failures": failures}
    write_record(arguments.out, look_around(), figures, {"fa3": baseline.version})


def _checks(baseline: Fa3Baseline, cell: Scenario, seeds: int) -> Iterator[ScenarioCheck]:
    """The verdicts on every setting's output, for every distribution and seed. lse is the reference's own."""
    q = torch.empty(cell.batch, cell.seqlen_q, cell.heads, cell.head_dim, dtype=torch.bfloat16, device="cuda")
    k, v = (q.new_empty(cell.batch, cell.seqlen_k, cell.kv_heads, cell.head_dim) for _ in range(2))
    lse = torch.empty(cell.batch, cell.heads, cell.seqlen_q, device="cuda")
    calls = baseline.calls(Tensors(q=q, k=k, v=v, o=torch.empty_like(q), lse=lse), cell)
    for distribution in JudgeSettings().distributions_for(cell.seqlen_k):
        for rng_seed in range(seeds):
            draw_inputs(distribution, rng_seed, q, k, v)
            reference = compute_reference(q, k, v, cell)
            for setting, call in calls.items():
                case = Case(scenario=cell.name, distribution=distribution, stage=setting, input_seed=rng_seed)
                yield judge(call(), reference.lse, reference, case)


def _nearest(checks: Sequence[ScenarioCheck]) -> dict[str, float | None]:
    """By rule the greatest error as a share of its bound; None where one is not finite."""
    return {
        error: _greatest([(getattr(check, error), getattr(check, bound)) for check in checks]) for error, bound in RULES
    }


def _greatest(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    shares = [error / bound for error, bound in pairs if error is not None and bound]
    return max(shares, default=0.0) if all(error is not None for error, _ in pairs) else None


if __name__ == "__main__":
    main()
