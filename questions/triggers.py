"""From a lineage's history to the moment, which decides what kind of question is asked next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from questions.history import Attempt, History
from questions.question import Moment
from questions.repeats import repeats_by_step

_MOMENT_OF_FAILURE = {
    "INVALID": Moment.COMPILE_FAILURE,  # these three never came to run on the suite
    "UNSUPPORTED": Moment.COMPILE_FAILURE,
    "COMPILE_ERROR": Moment.COMPILE_FAILURE,
    "RUNTIME_ERROR": Moment.INCORRECT,  # these three ran, and gave no right output
    "TIMEOUT": Moment.INCORRECT,
    "INCORRECT": Moment.INCORRECT,
}
_MOMENT_OF_CLAIM = {"limit": Moment.LIMIT_DECLARED, "done": Moment.DONE_DECLARED}


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Where a moment begins."""

    patience: int = 4  # attempts without a gain that make a stall
    min_change: float = 0.005  # a gain or loss below this share is none, however quiet the measurement
    big_win: float = 1.25  # child over parent, from which a win is suspicious by itself
    repairs: int = 2  # failures in a row that are asked about, before a stall outranks them
    repeat_share: float = 0.5  # of the lines last added, had been deleted before: going in circles
    repeat_lines: int = 8  # and at least so many lines, for a small edit repeats by chance

    def __post_init__(self) -> None:
        if self.patience < 1 or self.repairs < 0 or self.repeat_lines < 1:
            raise ValueError(f"{self}: expected patience and repeat_lines of at least 1, repairs of at least 0")
        if not (self.big_win > 1 and self.min_change >= 0 and 0 < self.repeat_share <= 1):
            raise ValueError(f"{self}: expected big_win above 1, min_change of at least 0, repeat_share in (0, 1]")


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The moment, and why it is one, in words for a log or a report."""

    moment: Moment
    reason: str


def read_moment(history: History, thresholds: Thresholds) -> Trigger:
    """The moment that the next question comes at: the first of these that holds.

    1. CROSSOVER: two parents; a question about one kernel would leave the other out.
    2. BIG_WIN: nothing may be built on a number that nobody believes.
    3. LIMIT_DECLARED, 4. DONE_DECLARED in the last reply: unanswered, either ends the search of this lineage.
    5. COMPILE_FAILURE, INCORRECT: the last attempt failed, and no more than `repairs` in a row did.
    6. STALL: no gain for `patience` attempts, or the last edit brought back what had been deleted.
    7. COMPILE_FAILURE, INCORRECT, however many. 8. SLOWER than its parent. 9. ANY.
    """
    if history.parents > 1:
        return Trigger(moment=Moment.CROSSOVER, reason=f"{history.parents} parents")
    if not history.attempts:
        return Trigger(moment=Moment.ANY, reason="nothing tried yet")
    last = history.attempts[-1]
    failing = _failure(history.attempts)
    repairing = failing if _failures_in_a_row(history.attempts) <= thresholds.repairs else None
    return (
        _big_win(last, thresholds)
        or _declaration(last)
        or repairing
        or _stall(history, thresholds)
        or failing
        or _slower(last, thresholds)
        or Trigger(moment=Moment.ANY, reason="nothing stands out")
    )


def attempts_without_gain(history: History, thresholds: Thresholds) -> int:
    """How many of the latest attempts brought no gain over the best before them.

    What counts as best moves only with a gain, so small steps that are none by themselves add up to one.
    """
    best, count = history.start_geomean, 0
    for attempt in history.attempts:
        if attempt.geomean is not None and (best is None or attempt.geomean / best > 1 + _band(attempt, thresholds)):
            best, count = attempt.geomean, 0
        else:
            count += 1
    return count


def _band(attempt: Attempt, thresholds: Thresholds) -> float:
    """The share below which two geomeans are the same: both were measured, each with that noise."""
    return max(thresholds.min_change, math.sqrt(2) * attempt.noise)


def _ratio(attempt: Attempt) -> float | None:
    if attempt.geomean is None or attempt.parent_geomean is None:
        return None
    return attempt.geomean / attempt.parent_geomean


def _big_win(last: Attempt, thresholds: Thresholds) -> Trigger | None:
    ratio = _ratio(last)
    if ratio is None:
        return None
    if ratio < thresholds.big_win:
        return Trigger(moment=Moment.BIG_WIN, reason=last.suspicion) if last.suspicion else None
    return Trigger(moment=Moment.BIG_WIN, reason=f"{ratio:.2f} times its parent's speed")


def _declaration(last: Attempt) -> Trigger | None:
    moment = _MOMENT_OF_CLAIM.get(last.claim)
    return None if moment is None else Trigger(moment=moment, reason="the last reply says so")


def _failure(attempts: Sequence[Attempt]) -> Trigger | None:
    moment = _MOMENT_OF_FAILURE.get(attempts[-1].status)
    return None if moment is None else Trigger(moment=moment, reason=f"the last attempt is {attempts[-1].status}")


def _failures_in_a_row(attempts: Sequence[Attempt]) -> int:
    passed = (i for i, attempt in enumerate(reversed(attempts)) if attempt.status not in _MOMENT_OF_FAILURE)
    return next(passed, len(attempts))


def _stall(history: History, thresholds: Thresholds) -> Trigger | None:
    count = attempts_without_gain(history, thresholds)
    if count >= thresholds.patience:
        return Trigger(moment=Moment.STALL, reason=f"no gain for {count} attempts")
    steps = repeats_by_step(history.sources)
    if steps and steps[-1].repeated >= thresholds.repeat_lines and steps[-1].share >= thresholds.repeat_share:
        return Trigger(moment=Moment.STALL, reason=f"{steps[-1].share:.0%} of the lines last added were deleted before")
    return None


def _slower(last: Attempt, thresholds: Thresholds) -> Trigger | None:
    ratio = _ratio(last)
    if last.status == "STOPPED_EARLY":
        return Trigger(moment=Moment.SLOWER, reason="stopped early, far behind")
    if ratio is None or ratio >= 1 - _band(last, thresholds):
        return None
    return Trigger(moment=Moment.SLOWER, reason=f"{ratio:.3f} times its parent's speed")
