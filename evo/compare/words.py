"""What a comparison can say and what it cannot, in words."""

from collections.abc import Sequence

from evo.compare.grouping import compares, differing_keys
from evo.compare.outcomes import Outcome
from evo.compare.runs import Run
from evo.compare.statistics import effect_size, least_p, least_runs
from evo.compare.summary import ALPHA, Comparison, GroupOutcome, Pair

_SETS_THE_SCALE = ("suite", "suite.scenarios", "baseline", "device", "backend")  # speedups differ in what they mean
_TIMED_ALIKE = 1.05  # greatest over least speedup of one kernel, up to which its measurements agree


def conclusions(comparison: Comparison) -> list[str]:
    """A sentence for each pair of groups, then for each group whose interval promises too much."""
    pairs = [_verdict(pair, comparison) for pair in comparison.pairs]
    return [*pairs, *(_of_interval(group) for group in comparison.groups if group.coverage < 1 - ALPHA)]


def cautions(runs: Sequence[Run], comparison: Comparison) -> list[str]:
    """What else sets the groups apart, or makes their comparison empty."""
    label = offline_label(runs, comparison.by)
    sentences = [] if label is None else [label]
    others = [key for key in differing_keys(runs, fixed=True) if key != "rng_seed" and not _is_of(key, comparison.by)]
    scales = [key for key in others if key in _SETS_THE_SCALE]
    if scales:
        sentences.append(f"the runs differ in {', '.join(scales)}: their speedups have no common scale")
    else:
        sentences += _noise(runs)
    if confounders := [key for key in others if key not in _SETS_THE_SCALE]:
        sentences.append(f"the runs differ in more than {comparison.by}: {', '.join(confounders)}")
    if comparison.outcome is Outcome.BEST and len({run.evaluations for run in comparison.runs}) > 1:
        sentences.append("the runs made different numbers of evaluations: outcome=best favours the longer ones")
    if empty := [run.name for run in comparison.runs if run.best == 0]:
        sentences.append(f"nothing passed in {', '.join(empty)}: counted as 0, below any speedup")
    if unfinished := sum(run.unfinished for run in comparison.runs):
        which = f"{unfinished} question{'s' if unfinished > 1 else ''} of generations that are not complete"
        sentences.append(f"the funnel and the gains leave out {which}")
    return sentences


def offline_label(runs: Sequence[Run], by: str) -> str | None:
    """What must stand wherever styles are compared over runs without a language model; None where it need not."""
    offline = [run.name for run in runs if run.offline]
    if not offline or not (compares(runs, by, "style") or "style.kind" in differing_keys(runs, fixed=True)):
        return None
    which = "all runs are" if len(offline) == len(runs) else f"{', '.join(offline)}: these runs are"
    return f"{which} offline: phrasing has no effect by construction"


def _verdict(pair: Pair, comparison: Comparison) -> str:
    names = f"{pair.first} against {pair.second}"
    runs = [group.runs for group in comparison.groups if group.name in (pair.first, pair.second)]
    sizes = " and ".join(map(str, runs))
    least = pair.mann_whitney.least_p
    if least > ALPHA:
        lacking = "too few runs" if least_p(*runs) > ALPHA else "too many equal outcomes"
        return (
            f"{names}: {lacking} to say anything: with {sizes} the test's least p is {least:.3g}, above {ALPHA}; "
            f"{_needed(pair, comparison)}"
        )
    if pair.least_holm > ALPHA:
        return (
            f"{names}: too few runs to say anything once corrected for {len(comparison.pairs)} pairs: with {sizes} the "
            f"least p is {pair.least_holm:.3g}, above {ALPHA}; {_needed(pair, comparison)}"
        )
    p = f"p = {pair.mann_whitney_holm:.3g}" + (" after Holm's correction" if len(comparison.pairs) > 1 else "")
    if pair.mann_whitney_holm <= ALPHA:
        better = pair.first if pair.a12 > 0.5 else pair.second
        return f"{names}: {better} is better ({p}, A12 = {pair.a12:.3g}, a {effect_size(pair.a12)} effect)"
    return f"{names}: no difference shown ({p}), which does not show that there is none; {_needed(pair, comparison)}"


def _needed(pair: Pair, comparison: Comparison) -> str:
    if pair.runs_needed is None:
        fewest = least_runs(ALPHA / len(comparison.pairs))
        return f"no effect is seen (A12 = 0.5), so no number of runs follows; it takes {fewest} a group at least"
    return f"an effect as seen (A12 = {pair.a12:.3g}) takes about {pair.runs_needed} runs a group for 80 % power"


def _of_interval(group: GroupOutcome) -> str:
    if group.runs == 1:
        return f"{group.name}: one run has no interval"
    return (
        f"{group.name}: the interval of its median is too narrow: with {group.runs} runs even their whole range holds "
        f"the median with {group.coverage:.1%} only"
    )


def _noise(runs: Sequence[Run]) -> list[str]:
    """How differently one kernel was measured in these runs tells how fine a difference between them can be."""
    measured: dict[str, list[float]] = {}
    for run in runs:
        for name, geomean in run.seeds.items():
            if geomean > 0:
                measured.setdefault(name, []).append(geomean)
    return [
        f"seed {name} itself was measured at {min(values):.4f} to {max(values):.4f} × in these runs: they were not "
        "timed alike, and the best of a run may owe its place to that"
        for name, values in measured.items()
        if max(values) > _TIMED_ALIKE * min(values)
    ]


def _is_of(key: str, by: str) -> bool:
    return key == by or key in (f"{by}.kind", f"{by}.name") or (by == "suite" and key == "suite.scenarios")
