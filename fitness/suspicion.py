"""Which wins are too good to be believed without an audit. Pure figures: equal evaluations are equally suspicious."""

from collections.abc import Iterator, Mapping, Sequence

from fitness.evaluation import Evaluation, ScenarioTiming
from fitness.roof import SLACK
from fitness.scenario import Scenario

MORE_WORK = 4.0  # times the work of another scenario of the same kind …
LEAST_GROWTH = 1.2  # … must take more than this many times as long
LEAST_MS = 0.05  # where the greater takes longer than this: below, launching is what takes the time


def suspicions(
    evaluation: Evaluation, parent_geomean: float | None, gain: float, scenarios: Sequence[Scenario]
) -> tuple[str, ...]:
    """Each reason to audit a candidate that passed; empty where there is none.

    A geometric mean of at least `gain` times the best parent's (None: it has none), a scenario above the device's
    roof by more than a tenth, or time that does not grow with the work.
    """
    if evaluation.geomean is None:
        return ()
    found = []
    if parent_geomean and evaluation.geomean >= gain * parent_geomean:
        found.append(f"{evaluation.geomean / parent_geomean:.2f} times its parent's speed")
    found += [
        f"{timing.scenario} in {timing.candidate_median_ms:.4f} ms, {timing.roof_share:.2f} times the device's roof"
        for timing in evaluation.timings
        if timing.roof_share is not None and timing.roof_share > SLACK
    ]
    return (*found, *_flat(evaluation.timings, {each.name: each for each in scenarios}))


def _flat(timings: Sequence[ScenarioTiming], scenarios: Mapping[str, Scenario]) -> Iterator[str]:
    """Pairs of the same kind of scenario of which the greater takes hardly any longer."""
    known = [(scenarios[each.scenario], each) for each in timings if each.scenario in scenarios]
    for small, short in known:
        for large, long in known:
            if (
                _kind(small) == _kind(large)
                and _contains(large, small)
                and large.flops >= MORE_WORK * small.flops
                and long.candidate_median_ms > LEAST_MS
                and long.candidate_median_ms < LEAST_GROWTH * short.candidate_median_ms
            ):
                yield (
                    f"{large.name} is {large.flops / small.flops:.0f} times the work of {small.name} and takes "
                    f"{long.candidate_median_ms / short.candidate_median_ms:.2f} times as long"
                )


def _kind(scenario: Scenario) -> tuple[object, ...]:
    return (scenario.heads, scenario.kv_heads, scenario.head_dim, scenario.causal, scenario.element_type)


def _contains(large: Scenario, small: Scenario) -> bool:
    sizes = (large.batch, large.seqlen_q, large.seqlen_k), (small.batch, small.seqlen_q, small.seqlen_k)
    return all(one >= other for one, other in zip(*sizes, strict=True))
