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
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 100), metavar="N", help="beside each")
    arguments = parser.parse_args()
    source = arguments.kernel.read_text(encoding="utf-8")
    suite = load_suite(arguments.suite)
    rounds: dict[str, list[Evaluation]] = {}
    for baseline in arguments.baselines:
        with open_judge(baseline=baseline) as judge:
            evaluator = judge.evaluator(suite)
            rounds[baseline] = [evaluator.evaluate(source) for _ in range(arguments.rounds)]
            machine, versions = judge.machine, {"nvrtc": judge.compiler.version}
    records = {name: [evaluation.to_json() for evaluation in evaluations] for name, evaluations in rounds.items()}
    figures = {"kernel": str(arguments.kernel), "suite": suite.name, "rounds": records}
    write_record(arguments.out, machine, figures, versions)
    timed = {name: [each for each in evaluations if each.timings] for name, evaluations in rounds.items()}
    _print_scenarios({name: evaluations for name, evaluations in timed.items() if evaluations})
    print_table(
        ("beside", "rounds", "median geomean", "least", "most", "least interval", "worst scenario"),
        [_row(name, evaluations) for name, evaluations in timed.items() if evaluations],
    )
    for name, evaluations in rounds.items():
        for evaluation in evaluations:
            if evaluation.status is not Status.PASSED:
                print(f"beside {name}: {evaluation.status}: {evaluation.reason}")
    if any(evaluation.status is not Status.PASSED for evaluations in rounds.values() for evaluation in evaluations):
        raise SystemExit(1)


def _print_scenarios(rounds: dict[str, list[Evaluation]]) -> None:
    """Medians over the rounds: the kernel's time and share of the roof beside the first baseline, and each speedup."""
    if not rounds:
        return
    first = next(iter(rounds.values()))
    rows = []
    for place, timing in enumerate(first[0].timings):
        share = [each.timings[place].roof_share or 0.0 for each in first]
        times = [each.timings[place].candidate_median_ms for each in first]
        speedups = [_median_speedup(evaluations, place) for evaluations in rounds.values()]
        rows.append((timing.scenario, statistics.median(times), statistics.median(share), *speedups))
    print_table(("scenario", "kernel ms", "of roof", *(f"x {baseline}" for baseline in rounds)), rows)


def _median_speedup(evaluations: Sequence[Evaluation], place: int) -> float:
    return statistics.median(each.timings[place].speedup for each in evaluations)


def _row(baseline: str, evaluations: Sequence[Evaluation]) -> tuple[object, ...]:
    geomeans = [each.geomean or 0.0 for each in evaluations]
    least_interval = min(each.geomean_low or 0.0 for each in evaluations)
    worst = min(_median_speedup(evaluations, place) for place in range(len(evaluations[0].timings)))
    spread = (statistics.median(geomeans), min(geomeans), max(geomeans), least_interval)
    return (baseline, len(evaluations), *spread, worst)


if __name__ == "__main__":
    main()
