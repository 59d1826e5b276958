"""When a search ends: budgets, targets, and interruptions, each with a reason that can be checked."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from evo.config import StopConfig

_PROVISIONAL = re.compile(
    r"interrupted by |the answerer gave up: |\d+ faults of the environment in a row|waiting for |"
    r"generation \d+ is complete$|the trace ends here$|.*; its best is not audited: ",
    re.DOTALL,
)


def is_final(reason: str) -> bool:
    """Whether a search that stopped for this reason has come to its end; others go on when asked to."""
    return _PROVISIONAL.match(reason) is None


class StopSearch(Exception):
    """Ends the search in order; `reason` goes into result.json, `exit_code` decides where it is not None."""

    exit_code: int | None = None

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GivenUp(StopSearch):
    """Ends the search because nobody answers any more: a wrong key, a quota that is used up."""

    exit_code = 2  # the environment's fault


class EnvironmentBroken(StopSearch):
    """Ends the search because measuring fails again and again, and not by the candidates."""

    exit_code = 2

    def __init__(self, faults: int, last: Exception) -> None:
        super().__init__(f"{faults} faults of the environment in a row, the last: {last}")


class Interrupted(StopSearch):
    """Ends the search because a signal asked for it."""

    exit_code: int

    def __init__(self, signal_name: str, exit_code: int) -> None:
        super().__init__(f"interrupted by {signal_name}")
        self.exit_code = exit_code


class Unaudited(StopSearch):
    """Ends a search whose budget is used up and whose best is not audited: going on with it does that alone."""

    exit_code: int

    def __init__(self, stop: StopSearch, cause: str, *, exit_code: int) -> None:
        super().__init__(f"{stop.reason}; its best is not audited: {cause}")
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far a run has come, all its parts together."""

    generation: int
    evaluations: int
    evaluations_since_best: int
    best_geomean: float
    barren_generations: int
    elapsed_s: float
    spend_usd: float


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One stop condition: it holds once `value` of the standing reaches `limit`."""

    key: str  # of StopConfig
    text: str
    limit: float | None
    value: Callable[[Standing], float]

    def reason(self, standing: Standing) -> str | None:
        """Why the search ends, or None."""
        if self.limit is None or self.value(standing) < self.limit:
            return None
        return f"{self.text} reached: {self.value(standing):.6g} of {self.limit:.6g}"


def conditions(limits: StopConfig) -> tuple[Condition, ...]:
    """The configured conditions, the goal first."""
    return (
        Condition(
            key="target_geomean", text="target geomean", limit=limits.target_geomean, value=lambda s: s.best_geomean
        ),
        Condition(key="evaluations", text="evaluation budget", limit=limits.evaluations, value=lambda s: s.evaluations),
        Condition(key="generations", text="generation budget", limit=limits.generations, value=lambda s: s.generation),
        Condition(key="wall_time_s", text="time budget (s)", limit=limits.wall_time_s, value=lambda s: s.elapsed_s),
        Condition(key="spend_usd", text="spend budget (USD)", limit=limits.spend_usd, value=lambda s: s.spend_usd),
        Condition(
            key="stall_evaluations",
            text="stall limit",
            limit=limits.stall_evaluations,
            value=lambda s: s.evaluations_since_best,
        ),
        Condition(
            key="barren_generations",
            text="generations without a new candidate",
            limit=limits.barren_generations,
            value=lambda s: s.barren_generations,
        ),
    )


def limit_behind(reason: str, limits: StopConfig) -> Condition | None:
    """The condition that ends searches for this reason; None where another thing than a limit does."""
    named = (condition for condition in conditions(limits) if reason.startswith(f"{condition.text} reached: "))
    return next(named, None)


def check(standing: Standing, limits: StopConfig) -> None:
    """Raise StopSearch for the first condition that holds."""
    for condition in conditions(limits):
        if (reason := condition.reason(standing)) is not None:
            raise StopSearch(reason)
