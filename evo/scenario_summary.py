"""What `evo verify --json` says of one scenario in a few figures; the calls and checks themselves stand beside it."""

from collections.abc import Sequence
from typing import Any

from fitness.evaluation import ScenarioCheck, ScenarioTiming

_ERRORS = (
    ("max_error", "max_error_bound"),
    ("relative_rms_error", "relative_rms_bound"),
    ("mean_error", "mean_error_bound"),
    ("lse_max_error", "lse_max_bound"),
    ("row_error", "row_error_bound"),
)


def scenario_summary(timing: ScenarioTiming, checks: Sequence[ScenarioCheck]) -> dict[str, Any]:
    """Status, times in ms, speedup with its interval, TFLOP/s, share of the roof, and the worst errors with bounds.

    `errors` holds, for each rule of the gate, the error that came nearest to its bound in any check of the scenario.
    """
    own = [check for check in checks if check.scenario == timing.scenario]
    return {
        "scenario": timing.scenario,
        "status": "PASSED" if all(check.passed for check in own) else "INCORRECT",
        "baseline_ms": timing.baseline_median_ms,
        "baseline_setting": timing.baseline_setting,
        "candidate_ms": timing.candidate_median_ms,
        "speedup": timing.speedup,
        "interval": [timing.speedup_low, timing.speedup_high],
        "tflops": timing.tflops,
        "roof_share": timing.roof_share,
        "calls": len(timing.candidate_ms),
        "errors": {error: _nearest(own, error, bound) for error, bound in _ERRORS},
    }


def _nearest(checks: Sequence[ScenarioCheck], error: str, bound: str) -> dict[str, float] | None:
    """The error that is the greatest share of its bound; None where no check has both."""
    pairs = [(getattr(check, error), getattr(check, bound)) for check in checks]
    known = [(found, most) for found, most in pairs if found is not None and most is not None]
    if not known:
        return None
    found, most = max(known, key=lambda pair: pair[0] / pair[1] if pair[1] else float(pair[0] > 0))
    return {"error": found, "bound": most}
