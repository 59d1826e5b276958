"""The same kernel first and last among those that a process times, on a device that slows down meanwhile."""

import itertools
import random
from pathlib import Path

import pytest

from fitness.baselines.fastest import FastestSetting
from fitness.judge_settings import JudgeSettings
from fitness.timing import time_scenario
from fitness.watch import Watch
from tests.fitness.fake_device import KERNELS, FakeBackend, FakeBaseline, FakeReplay, plan, scenario

CALLS = 40  # of each side
SLOWER = 0.002  # each call than the one before; from the first kernel's calls to the last one's by about a third
JITTER = 0.01


class Warming(FakeBackend):
    """A device on which a candidate takes 2 ms, or `slow` 3, and the baseline 4 at first."""

    def __init__(self):
        super().__init__({**KERNELS, "slow": KERNELS["right"]})
        self._calls, self._noise = itertools.count(), random.Random(1)

    def bind(self, bound_plan, binary):
        bound = super().bind(bound_plan, binary)
        bound.replay = WarmReplay(self, bound.replay.call, "candidate", 3.0 if binary.name == "slow" else 2.0)
        return bound

    def capture(self, call):
        replay = super().capture(call)
        replay.time_ms = WarmReplay(self, replay.call, "baseline", 4.0).time_ms
        return replay

    def slowdown(self):
        return (1 + SLOWER * next(self._calls)) * self._noise.uniform(1 - JITTER, 1 + JITTER)


class WarmReplay(FakeReplay):
    def __init__(self, backend, call, name, milliseconds):
        super().__init__(backend, call, name)
        self.milliseconds = milliseconds

    def time_ms(self):
        super().time_ms()
        return self.milliseconds * self.backend.slowdown()


def timings(*kernels):
    """The timings of kernels by name, one after the other in one process."""
    backend, shape = Warming(), scenario(seqlen_q=8, seqlen_k=8)
    baseline, of_shape = FastestSetting(FakeBaseline(), backend), plan(shape)
    settings = JudgeSettings(repeats=CALLS, least_repeats=CALLS, warmups=1, bootstrap_draws=200)
    watch, rng = Watch(lambda _step, _deadline_s: None, settings), random.Random(7)
    found = [
        time_scenario(of_shape, {of_shape.build: Path(name)}, backend, baseline, settings, rng, watch)
        for name in kernels
    ]
    return [each.timing for each in found]


def test_the_same_kernel_first_and_last_has_the_same_speedup_within_the_noise_though_the_device_slows_down():
    first, other, last = timings("right", "slow", "right")
    assert last.candidate_median_ms > 1.25 * first.candidate_median_ms
    speedups = [each.speedup for each in (first, other, last)]
    assert speedups == pytest.approx([2.0, 4 / 3, 2.0], rel=JITTER)
    assert max(first.speedup_low, last.speedup_low) <= min(first.speedup_high, last.speedup_high)
