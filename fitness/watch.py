"""Who is at work in the worker, told before each step, so that the parent blames the right one for a death."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from fitness.evaluation import ScenarioCheck
from fitness.judge_settings import JudgeSettings


class Party(StrEnum):
    """Whose code runs."""

    CANDIDATE = "candidate"
    HARNESS = "harness"  # the baseline's calls too


@dataclass(frozen=True, kw_only=True)
class Step:
    """What begins now; `check` is the verdict just reached, where one was."""

    party: Party
    activity: str  # "running the candidate on b1 h2 s64 d64 causal bf16"
    check: ScenarioCheck | None = None


class Watch:
    """Reports each step through `report(step, deadline_s)`: the next report, or the end, comes within deadline_s."""

    def __init__(self, report: Callable[[Step, float], None], settings: JudgeSettings) -> None:
        self._report = report
        self._settings = settings

    @contextmanager
    def candidate(self, activity: str) -> Iterator[None]:
        """The candidate's code runs inside."""
        self._report(Step(party=Party.CANDIDATE, activity=activity), self._settings.call_timeout_s)
        yield
        self.harness(f"after {activity}")

    def harness(self, activity: str, check: ScenarioCheck | None = None) -> None:
        """Our own code runs from here on."""
        self._report(Step(party=Party.HARNESS, activity=activity, check=check), self._settings.harness_timeout_s)
