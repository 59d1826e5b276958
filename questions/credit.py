"""What a question has brought so far: the tally that the sampler learns from, and its statistics for people."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from scipy.special import stdtrit

FULL_CREDIT_GAIN = 1.10  # child over parent, from which a reward is 1: one lucky scenario must not outweigh ten gains


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one question. Each step needs the one before it; raises ValueError where it lacks it."""

    answered: bool  # the reply could be read
    compiled: bool = False
    right: bool = False  # every output of it
    gain: float | None = None  # child's geomean / parent's; None where not right, or given up on as far too slow
    noise: float = 0.0  # the share below which a gain is none

    def __post_init__(self) -> None:
        if (self.compiled and not self.answered) or (self.right and not self.compiled):
            raise ValueError(f"{self}: expected right only where compiled, compiled only where answered")
        if self.gain is not None and not (self.right and math.isfinite(self.gain) and self.gain > 0):
            raise ValueError(f"{self}: expected a gain only where right, finite and above 0")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"{self}: expected a finite noise of at least 0")

    @property
    def reward(self) -> float:
        """0 for a failure, 0.5 for a child as fast as its parent, 1 from FULL_CREDIT_GAIN on; log-linear between."""
        if self.gain is None:
            return 0.0
        return min(1.0, max(0.0, 0.5 + 0.5 * math.log(self.gain) / math.log(FULL_CREDIT_GAIN)))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts and running moments of one question's outcomes; a new one is built for every outcome."""

    asked: int = 0
    credited: int = 0
    answered: int = 0
    compiled: int = 0
    right: int = 0
    gained: int = 0
    reward_sum: float = 0.0
    timed: int = 0  # outcomes with a gain, whose logarithm's mean and sum of squared deviations follow
    log_gain_mean: float = 0.0
    log_gain_deviation: float = 0.0

    def plus_asked(self) -> "Tally":
        """The tally once the question has been asked again."""
        return Tally(**{**asdict(self), "asked": self.asked + 1})

    def plus(self, outcome: Outcome) -> "Tally":
        """The tally with the outcome; the running moments by Welford, Technometrics 4 (1962)."""
        counted = {
            "credited": self.credited + 1,
            "answered": self.answered + outcome.answered,
            "compiled": self.compiled + outcome.compiled,
            "right": self.right + outcome.right,
            "reward_sum": self.reward_sum + outcome.reward,
        }
        if outcome.gain is not None:
            log_gain = math.log(outcome.gain)
            mean = self.log_gain_mean + (log_gain - self.log_gain_mean) / (self.timed + 1)
            counted |= {
                "gained": self.gained + (outcome.gain > 1 + outcome.noise),
                "timed": self.timed + 1,
                "log_gain_mean": mean,
                "log_gain_deviation": self.log_gain_deviation + (log_gain - self.log_gain_mean) * (log_gain - mean),
            }
        return Tally(**{**asdict(self), **counted})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives the equal tally back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Tally":
        """The tally that `to_json` wrote. Raises ValueError for other fields, or numbers that no tally has."""
        names = [field.name for field in fields(cls)]
        if not isinstance(record, Mapping) or sorted(record) != sorted(names):
            raise ValueError(f"tally {record!r}; expected the fields {', '.join(names)}")
        for field in fields(cls):
            _check_number(field.name, record[field.name], whole=field.type is int)
        return cls(**record)


def _check_number(name: str, value: object, *, whole: bool) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        raise ValueError(f"tally, {name}: {value!r}; expected a finite {'whole ' if whole else ''}number")
    if value < 0 and name != "log_gain_mean":
        raise ValueError(f"tally, {name}: {value!r}; expected at least 0")


@dataclass(frozen=True, kw_only=True)
class QuestionStatistics:
    """How a question has done. Gains are child over parent; None where too few children were timed."""

    question_id: str
    asked: int
    answered: int
    compiled: int
    right: int
    gained: int
    mean_gain: float | None  # geometric; needs one timed child
    mean_gain_low: float | None  # 95 % interval; needs two
    mean_gain_high: float | None


def statistics_of(question_id: str, tally: Tally) -> QuestionStatistics:
    """The tally as statistics. The interval is Student's t on the logarithms of the gains."""
    half_width = _half_width(tally)
    return QuestionStatistics(
        question_id=question_id,
        asked=tally.asked,
        answered=tally.answered,
        compiled=tally.compiled,
        right=tally.right,
        gained=tally.gained,
        mean_gain=math.exp(tally.log_gain_mean) if tally.timed else None,
        mean_gain_low=None if half_width is None else math.exp(tally.log_gain_mean - half_width),
        mean_gain_high=None if half_width is None else math.exp(min(tally.log_gain_mean + half_width, 700.0)),
    )


def _half_width(tally: Tally) -> float | None:
    if tally.timed < 2:
        return None
    freedom = tally.timed - 1
    return float(stdtrit(freedom, 0.975)) * math.sqrt(tally.log_gain_deviation / freedom / tally.timed)
