"""Calls of a stamped kernel by two clocks: the device's own, read inside, and the events that time every call."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MARGIN_SHARE, MARGIN_MS = 0.05, 0.003  # an event is good to half a microsecond, the timer inside to one on some devices
ANOTHER_KERNEL = 1.5  # times as long outside, either way: stamps have made another kernel of it
NEVER = np.iinfo(np.int64).max  # what a first clock holds before anything began


@dataclass(frozen=True, kw_only=True)
class Span:
    """From the first beginning of a warp to the last end."""

    cycles: int  # on that SM where it is longest: each counts its own
    nanoseconds: int  # on all of them: they share this timer


@dataclass(frozen=True, kw_only=True)
class ClockedCall:
    """One call by both clocks."""

    span: Span
    outside_ms: float  # between the events
    sm_mhz: float  # right after it; 0 where nothing tells


@dataclass(frozen=True, kw_only=True)
class ClockedScenario:
    """The calls of one scenario. `peak_mhz` is the greatest rate of the device's SMs; 0 where nothing tells."""

    scenario: str
    launches: int
    peak_mhz: float
    calls: tuple[ClockedCall, ...]

    @property
    def outside_ms(self) -> float:
        """Between the events, the median."""
        return statistics.median(call.outside_ms for call in self.calls)

    @property
    def inside_ms(self) -> float:
        """How long the kernels were at work at the very least, the median."""
        return statistics.median(map(self._inside_ms, self.calls))

    @property
    def unseen_ms(self) -> float:
        """How far the work exceeds what the events see with the margin, the median; below 0 for an honest clock."""
        allowed = 1 + MARGIN_SHARE
        return statistics.median(self._inside_ms(call) - allowed * call.outside_ms - MARGIN_MS for call in self.calls)

    def figures(self) -> str:
        """In words, of the call in the middle."""
        call = sorted(self.calls, key=lambda each: each.outside_ms)[len(self.calls) // 2]
        rate = f" at {call.sm_mhz:.0f} MHz right after" if call.sm_mhz else ""
        return (
            f"{self.scenario}: {call.span.cycles} cycles on one SM{rate}, {call.span.nanoseconds / 1e6:.4f} ms by the "
            f"timer inside, {call.outside_ms:.4f} ms outside"
        )

    def _inside_ms(self, call: ClockedCall) -> float:
        """By the timer, or by the cycles as if the SM had run at its peak: at any other rate they take longer still.

        Cycles count for a single kernel alone: between two an SM may rest.
        """
        timer_ms = call.span.nanoseconds / 1e6
        return max(timer_ms, call.span.cycles / (1e3 * self.peak_mhz)) if self._cycles_count else timer_ms

    @property
    def _cycles_count(self) -> bool:
        return self.launches == 1 and self.peak_mhz > 0


@dataclass(frozen=True, kw_only=True)
class ClockVerdict:
    """What both clocks say of several scenarios."""

    unseen: str  # work that the clock outside does not see; "" where it sees all
    compared: tuple[ClockedScenario, ...]
    astray: str  # the scenarios on which the stamped kernel is another one, with figures


def read_span(stamps: npt.NDArray[np.int64]) -> Span | None:
    """The span in stamps `[SMs, 4]` (first and last cycle, first and last nanosecond); None where nothing left one."""
    began, ended = stamps[:, 0] != NEVER, stamps[:, 1] != 0
    used = stamps[began & ended]
    if len(used) == 0:
        return None
    cycles = int((used[:, 1] - used[:, 0]).max())
    return Span(cycles=cycles, nanoseconds=int(used[:, 3].max() - used[:, 2].min()))


def judge_clocks(clocked: Sequence[ClockedScenario], plain_ms: Mapping[str, float]) -> ClockVerdict:
    """The verdict; `plain_ms` are times of the kernel without stamps, by scenario."""
    compared, astray = list[ClockedScenario](), list[str]()
    for each in clocked:
        ratio = each.outside_ms / plain_ms[each.scenario]
        if 1 / ANOTHER_KERNEL <= ratio <= ANOTHER_KERNEL:
            compared.append(each)
        else:
            without_ms = plain_ms[each.scenario]
            astray.append(f"{each.scenario} takes {each.outside_ms:.4f} ms with them and {without_ms:.4f} without")
    worst = max(compared, key=lambda each: each.unseen_ms, default=None)
    unseen = worst.figures() if worst is not None and worst.unseen_ms > 0 else ""
    return ClockVerdict(unseen=unseen, compared=tuple(compared), astray="; ".join(astray))
