"""Calls by both clocks on the fake device, which leaves stamps."""

import numpy as np
import pytest

from fitness.clocked import NEVER, ClockedCall, Span
from fitness.clocking import CALLS, clock
from fitness.examination import Examination
from fitness.faults import EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.watch import Party, Watch
from tests.fitness.fake_device import KERNELS, FakeBackend, FakeBound, binaries, scenario, suite_plan


class FakeStamps:
    """Every call is at work on one SM for 7 cycles, and for as many nanoseconds as it is the call."""

    peak_mhz = 1980.0

    def __init__(self, backend, leaves):
        self.backend, self.leaves, self.calls = backend, leaves, 0

    def clear(self):
        self.backend.events.append("clear")

    def read(self):
        self.calls += 1
        stamps = np.array([[NEVER, 0, NEVER, 0]] * 2, dtype=np.int64)
        if self.leaves:
            stamps[1] = (3, 10, 5, 5 + self.calls)
        return stamps


class StampedBound(FakeBound):
    leaves = True

    def stamps(self):
        return FakeStamps(self.backend, self.leaves)


class WithoutStamps(StampedBound):
    leaves = False


def clocked(kernel="right", bound=StampedBound, steps=None):
    class Backend(FakeBackend):
        def bind(self, plan, binary):
            return bound(self, plan.scenario, self.kernels[binary.name])

    plan = suite_plan([scenario(), scenario(batch=2)])
    job = Examination(plan=plan, binaries=binaries(plan, kernel), settings=JudgeSettings(), rng_seed=3, stamped=True)
    backend = Backend(KERNELS, range(1, 100))
    watch = Watch(lambda step, _: None if steps is None else steps.append(step), job.settings)
    return clock(job, backend, watch), backend.events


def test_each_scenario_is_clocked_call_by_call_but_for_the_first():
    found, _ = clocked()
    assert found.fault == ""
    assert [each.scenario for each in found.clocked] == [scenario().name, scenario(batch=2).name]
    first = found.clocked[0]
    assert (first.launches, first.peak_mhz, len(first.calls)) == (1, 1980.0, CALLS)
    assert first.calls[0] == ClockedCall(span=Span(cycles=7, nanoseconds=2), outside_ms=2, sm_mhz=1980.0)


def test_every_call_finds_no_stamps_poisoned_outputs_and_a_cold_cache_and_the_rate_is_read_right_after():
    _, events = clocked()
    places = [place for place, event in enumerate(events) if event == "time candidate"]
    assert len(places) == 2 * (CALLS + 1)
    for place in places:
        assert events[place - 3 : place + 2] == ["clear", "poison", "flush", "time candidate", "clocks"]


def test_the_candidates_code_runs_under_its_own_name():
    steps = []
    clocked("faults", steps=steps)
    assert steps[-1].party is Party.CANDIDATE


@pytest.mark.parametrize(
    ("kernel", "bound", "fault"),
    [
        ("faults", StampedBound, "an illegal address"),
        ("zeros", StampedBound, "wrong output on b1 h2/1 s64 d32 causal bf16"),
        ("right", WithoutStamps, "no warp left a stamp on b1 h2/1 s64 d32 causal bf16"),
    ],
)
def test_what_cannot_be_clocked_says_why(kernel, bound, fault):
    found, _ = clocked(kernel, bound)
    assert found.clocked == ()
    assert found.fault.startswith(fault)


def test_a_backend_without_stamps_is_the_environments_fault():
    with pytest.raises(EnvironmentFault, match="reads no stamps"):
        clocked(bound=FakeBound)
