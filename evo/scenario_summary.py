"""What `evo verify --json` says of one scenario in a few figures; the calls and checks themselves stand beside it."""

from collections.abc import Sequence
from typing import Any

from fitness.evaluation import Evaluation, ScenarioCheck, ScenarioTiming

_ERRORS = (
    ("max_error", "max_error_bound"),
    ("relative_rms_error", "relative_rms_bound"),
    ("mean_error", "mean_error_bound"),
    ("lse_max_error", "lse_max_bound"),
    ("row_error", "row_error_bound"),
)
_OF_TIME = (
    "baseline_ms", "baseline_setting", "candidate_ms", "speedup", "interval", "tflops", "roof_share", "calls",
)  # fmt: skip


def scenario_summaries(evaluation: Evaluation) -> list[dict[str, Any]]:
    """For each scenario its status, times in ms, speedup with its interval, TFLOP/s, share of the roof, worst errors.

    Those that were timed come first. Of one that was checked alone (an edge shape, or any where a kernel is wrong) the
    figures of time are None. `errors` holds, for each rule of the gate, the error that came nearest to its bound in any
    check of the scenario.
    """
    timings = {timing.scenario: timing for timing in evaluation.timings}
    names = dict.fromkeys([*timings, *(check.scenario for check in evaluation.checks)])
    return [_summary(name, timings.get(name), evaluation.checks) for name in names]


def _summary(name: str, timing: ScenarioTiming | None, checks: Sequence[ScenarioCheck]) -> dict[str, Any]:
    own = [check for check in checks if check.scenario == name]
    return {
        "scenario": name,
        "status": "PASSED" if all(check.passed for check in own) else "INCORRECT",
        **(dict.fromkeys(_OF_TIME) if timing is None else _times(timing)),
        "errors": {error: _nearest(own, error, bound) for error, bound in _ERRORS},
    }


def _times(timing: ScenarioTiming) -> dict[str, Any]:
    return {
        "baseline_ms": timing.baseline_median_ms,
        "baseline_setting": timing.baseline_setting,
        "candidate_ms": timing.candidate_median_ms,
        "speedup": timing.speedup,
        "interval": [timing.speedup_low, timing.speedup_high],
        "tflops": timing.tflops,
        "roof_share": timing.roof_share,
        "calls": len(timing.candidate_ms),
    }


def _nearest(checks: Sequence[ScenarioCheck], error: str, bound: str) -> dict[str, float] | None:
    """The error that is the greatest share of its bound; None where no check has both."""
    pairs = [(getattr(check, error), getattr(check, bound)) for check in checks]
    known = [(found, most) for found, most in pairs if found is not None and most is not None]
    if not known:
        return None
    found, most = max(known, key=lambda pair: pair[0] / pair[1] if pair[1] else float(pair[0] > 0))
    return {"error": found, "bound": most}
