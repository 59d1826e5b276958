"""One kernel beside several baselines, scenario by scenario, each measured several times: the table of a champion.

The rounds of one baseline differ by what measuring alone produces: fresh inputs, fresh secret seeds, the same kernel.
Scenarios that a baseline cannot compute are left out beside it, and counted.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.device import open_judge
from benchmarks.ending import ended
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.baselines.selection import build_baseline
from fitness.evaluation import Evaluation, ScenarioTiming, Status
from fitness.scenario import Suite


def main() -> int:
    """Run, print, write. Returns 1 where the kernel was not right in some round."""
    parser = argument_parser(__doc__, "rivals.json")
    parser.add_argument("kernel", type=Path, metavar="KERNEL.cu")
    parser.add_argument("--suite", default="core26")
    parser.add_argument("--baselines", nargs="+", default=["fa3", "cudnn"])
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 100), metavar="N", help="beside each")
    arguments = parser.parse_args()
    source = arguments.kernel.read_bytes().decode("utf-8")
    suite = load_suite(arguments.suite)
    rounds: dict[str, list[Evaluation]] = {}
    for baseline in arguments.baselines:
        with open_judge(baseline=baseline) as judge:
            evaluator = judge.evaluator(able(baseline, suite))
            rounds[baseline] = [evaluator.evaluate(source) for _ in range(arguments.rounds)]
            machine, versions = judge.machine, {"nvrtc": judge.compiler.version}
    records = {name: [evaluation.to_json() for evaluation in evaluations] for name, evaluations in rounds.items()}
    figures = {"kernel": str(arguments.kernel), "suite": suite.name, "rounds": records}
    write_record(arguments.out, machine, figures, versions)
    timed = {name: [each for each in evaluations if each.timings] for name, evaluations in rounds.items()}
    print_scenarios({name: evaluations for name, evaluations in timed.items() if evaluations})
    print_table(
        ("beside", "rounds", "cells", "median geomean", "least", "most", "least interval", "worst scenario"),
        [summary_row(name, evaluations) for name, evaluations in timed.items() if evaluations],
    )
    for name, evaluations in rounds.items():
        for evaluation in evaluations:
            if evaluation.status is not Status.PASSED:
                print(f"beside {name}: {evaluation.status}: {evaluation.reason}")
    return int(any(each.status is not Status.PASSED for evaluations in rounds.values() for each in evaluations))


def able(baseline: str, suite: Suite) -> Suite:
    """The suite without what a baseline cannot compute."""
    built = build_baseline(baseline)
    left = [tuple(each for each in part if not built.cannot(each)) for part in (suite.scenarios, suite.edges)]
    return replace(suite, scenarios=left[0], edges=left[1])


def print_scenarios(rounds: Mapping[str, Sequence[Evaluation]]) -> None:
    """Medians over the rounds: the kernel's time and share of the roof beside the first baseline, and each speedup."""
    if not rounds:
        return
    found = {baseline: _by_scenario(evaluations) for baseline, evaluations in rounds.items()}
    rows = []
    for scenario, timings in next(iter(found.values())).items():
        share = statistics.median(each.roof_share or 0.0 for each in timings)
        milliseconds = statistics.median(each.candidate_median_ms for each in timings)
        speedups = [_median_speedup(each[scenario]) if scenario in each else "" for each in found.values()]
        rows.append((scenario, milliseconds, share, *speedups))
    print_table(("scenario", "kernel ms", "of roof", *(f"x {baseline}" for baseline in found)), rows)


def _by_scenario(evaluations: Sequence[Evaluation]) -> dict[str, list[ScenarioTiming]]:
    found: dict[str, list[ScenarioTiming]] = {}
    for evaluation in evaluations:
        for timing in evaluation.timings:
            found.setdefault(timing.scenario, []).append(timing)
    return found


def _median_speedup(timings: Sequence[ScenarioTiming]) -> float:
    return statistics.median(timing.speedup for timing in timings)


def summary_row(baseline: str, evaluations: Sequence[Evaluation]) -> tuple[object, ...]:
    geomeans = [each.geomean or 0.0 for each in evaluations]
    least_interval = min(each.geomean_low or 0.0 for each in evaluations)
    speedups = [_median_speedup(timings) for timings in _by_scenario(evaluations).values()]
    spread = (statistics.median(geomeans), min(geomeans), max(geomeans), least_interval)
    return (baseline, len(evaluations), len(speedups), *spread, min(speedups))


if __name__ == "__main__":
    raise SystemExit(ended(main))
