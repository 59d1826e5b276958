"""One kernel beside several baselines, scenario by scenario, each measured several times: the table of a champion.

The rounds of one baseline differ by what measuring alone produces: fresh inputs, fresh secret seeds, the same kernel.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.device import open_judge
from benchmarks.record import argument_parser, print_table, write_record
from evo.suites import load_suite
from fitness.evaluation import Evaluation, Status


def main() -> None:
    """Run, print, write. Exits with 1 where the kernel was not right in some round."""
    parser = argument_parser(__doc__, "rivals.json")
    parser.add_argument("kernel", type=Path, metavar="KERNEL.cu")
    parser.add_argument("--suite", default="core26")
    parser.add_argument("--baselines", nargs="+", default=["fa3", "cudnn"])
    parser.add_argument("--rounds", type=int, default=3, help="evaluations beside each baseline")
    arguments = parser.parse_args()
    source = arguments.kernel.read_text(encoding="utf-8")
    suite = load_suite(arguments.suite)
    rounds: dict[str, list[Evaluation]] = {}
    for baseline in arguments.baselines:
        with open_judge(baseline=baseline) as judge:
            evaluator = judge.evaluator(suite)
            rounds[baseline] = [evaluator.evaluate(source) for _ in range(arguments.rounds)]
            machine, versions = judge.machine, {"nvrtc": judge.compiler.version}
    _print_scenarios(rounds)
    print_table(
        ("beside", "rounds", "all right", "median geomean", "least", "most", "least interval", "worst scenario"),
        [_row(baseline, evaluations) for baseline, evaluations in rounds.items()],
    )
    records = {name: [evaluation.to_json() for evaluation in evaluations] for name, evaluations in rounds.items()}
    figures = {"kernel": str(arguments.kernel), "suite": suite.name, "rounds": records}
    write_record(arguments.out, machine, figures, versions)
    if any(evaluation.status is not Status.PASSED for evaluations in rounds.values() for evaluation in evaluations):
        raise SystemExit(1)


def _print_scenarios(rounds: dict[str, list[Evaluation]]) -> None:
    """Medians over the rounds: the kernel's time and share of the roof beside the first baseline, and each speedup."""
    first = next(iter(rounds.values()))
    rows = []
    for place, timing in enumerate(first[0].timings):
        share = [each.timings[place].roof_share or 0.0 for each in first if each.timings]
        times = [each.timings[place].candidate_median_ms for each in first if each.timings]
        speedups = [_median_speedup(evaluations, place) for evaluations in rounds.values()]
        rows.append((timing.scenario, statistics.median(times), statistics.median(share), *speedups))
    print_table(("scenario", "kernel ms", "of roof", *(f"x {baseline}" for baseline in rounds)), rows)


def _median_speedup(evaluations: Sequence[Evaluation], place: int) -> float:
    return statistics.median(each.timings[place].speedup for each in evaluations if each.timings)


def _row(baseline: str, evaluations: Sequence[Evaluation]) -> tuple[object, ...]:
    passed = [each for each in evaluations if each.geomean is not None]
    if not passed:
        return (baseline, len(evaluations), False, evaluations[0].reason)
    geomeans = [each.geomean for each in passed if each.geomean is not None]
    lows = [each.geomean_low for each in passed if each.geomean_low is not None]
    worst = min(_median_speedup(passed, place) for place in range(len(passed[0].timings)))
    right = len(passed) == len(evaluations)
    spread = (statistics.median(geomeans), min(geomeans), max(geomeans), min(lows))
    return (baseline, len(evaluations), right, *spread, worst)


if __name__ == "__main__":
    main()
