"""The timing stage on a fake device: the order of things around each timed call, and what becomes of odd clocks."""

import math
import random
from itertools import pairwise

import pytest
import torch

from fitness.baselines.fastest import FastestSetting
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.reference import compute_reference
from fitness.timing import time_scenario
from fitness.watch import Party, Watch
from tests.fitness.fake_device import (
    KERNELS,
    FakeBackend,
    FakeBaseline,
    binaries,
    plan,
    right,
    right_o,
    scenario,
    suite_plan,
)

SHAPE = scenario()


def timed(kernel=right, times_ms=(1.0,), baseline=None, steps=None, rng_seed=1, **settings):
    backend = FakeBackend({**KERNELS, "kernel": kernel}, times_ms)
    settings = JudgeSettings(**{"repeats": 6, "warmups": 1, "bootstrap_draws": 50, **settings})
    watch = Watch(lambda step, deadline_s: None if steps is None else steps.append((step, deadline_s)), settings)
    found = time_scenario(
        plan(SHAPE), binaries(suite_plan([SHAPE]), "kernel"), backend,
        FastestSetting(baseline or FakeBaseline(), backend), settings,
        random.Random(rng_seed), watch,
    )  # fmt: skip
    return found, backend.events


def test_both_sides_are_timed_as_often_as_the_settings_say():
    found, events = timed()
    assert len(found.timing.candidate_ms) == len(found.timing.baseline_ms) == 6
    assert events.count("time candidate") == events.count("time baseline") == 6
    assert events.count("candidate") == 1


def test_the_figures_are_those_of_the_medians():
    found, _ = timed(times_ms=[2.0])
    timing = found.timing
    assert (timing.candidate_median_ms, timing.baseline_median_ms, timing.speedup) == (2.0, 2.0, 1.0)
    assert timing.tflops == pytest.approx(SHAPE.flops / 2e-3 / 1e12)
    assert timing.speedup_low <= timing.speedup <= timing.speedup_high
    assert timing.scenario == SHAPE.name


def test_the_clocks_are_read_once_after_the_timed_calls_and_kept():
    found, events = timed()
    assert found.timing.clocks == {"sm_mhz": 1980.0, "celsius": 41.0}
    assert events.count("clocks") == 1
    assert not any(event.startswith("time") for event in events[events.index("clocks") :])


def test_every_timed_call_finds_a_cold_cache_and_the_candidate_poisoned_outputs():
    _, events = timed()
    for before, event in pairwise(events):
        if event.startswith("time"):
            assert before == "flush"
    for i, event in enumerate(events):
        if event == "time candidate":
            assert events[i - 2] == "poison"


def test_either_side_goes_first_at_times():
    _, events = timed(repeats=20)
    order = [event for event in events if event.startswith("time")]
    firsts = set(order[::2])
    assert firsts == {"time candidate", "time baseline"}
    assert all({one, other} == firsts for one, other in zip(order[::2], order[1::2], strict=True))


def test_the_inputs_are_new_in_every_pair_and_nobody_has_seen_them_before_the_candidate():
    calls = []

    def kernel(tensors, shape):
        right(tensors, shape)
        calls.append(("candidate", tensors.q.clone()))

    def attend(tensors, shape):
        calls.append(("baseline", tensors.q.clone()))
        return right_o(tensors, shape)

    timed(kernel, baseline=FakeBaseline(attend=attend), warmups=0)
    candidates = [i for i, (who, _) in enumerate(calls) if who == "candidate"]
    assert len(candidates) == 6
    for i in candidates:
        assert not any(torch.equal(q, calls[i][1]) for _, q in calls[:i])
        assert calls[i + 1][0] == "baseline"  # timed, or called once more to be compared
        assert torch.equal(calls[i + 1][1], calls[i][1])


def coarse_at(timed_call, type_of_v):
    """A kernel that takes v in another type in one of its timed calls, counted from 1 after one warm-up."""
    calls = []

    def coarse(tensors, shape):
        right(tensors, shape)
        calls.append(shape)
        if len(calls) == 1 + timed_call:
            tensors.o.copy_(compute_reference(tensors.q, tensors.k, type_of_v(tensors.v), shape).o)

    return coarse


def eight_bits(v):
    return v.to(torch.float8_e4m3fn).to(v.dtype)


def two_bits_fewer(v):
    return (v.view(torch.int16) & -4).view(v.dtype)


@pytest.mark.parametrize("timed_call", [1, 3, 6])
def test_an_eight_bit_type_in_one_timed_call_is_caught_whichever_is_held_against_the_reference(timed_call):
    reasons = []
    for rng_seed in range(8):
        found, _ = timed(coarse_at(timed_call, eight_bits), rng_seed=rng_seed)
        assert (found.timing, found.check.passed) == (None, False)
        reasons.append(found.check.reason)
    assert f"timed call {timed_call}: o is not what the baseline gives on the same inputs" in reasons


def test_less_than_two_percent_coarser_is_caught_by_some_rows_of_every_timed_call():
    reasons = [timed(coarse_at(6, two_bits_fewer), rng_seed=rng_seed)[0].check.reason for rng_seed in range(8)]
    assert all("timed call 6: in queries" in reason and "relative RMS error" in reason for reason in reasons)


def wrong_at(timed_call, name, value):
    """A kernel that fills o or lse with a value in one of its timed calls, counted from 1 after one warm-up."""
    calls = []

    def wrong(tensors, shape):
        right(tensors, shape)
        calls.append(shape)
        if len(calls) == 1 + timed_call:
            getattr(tensors, name).fill_(value)

    return wrong


@pytest.mark.parametrize("timed_call", [1, 3, 6])
@pytest.mark.parametrize("name", ["o", "lse"])
@pytest.mark.parametrize("value", [math.inf, 1e30, math.nan, 0.0])
def test_what_is_far_off_in_one_timed_call_is_caught_however_far(timed_call, name, value):
    """An infinite result, or one whose square is, lies no nearer to the baseline's for that."""
    for rng_seed in range(8):
        found, _ = timed(wrong_at(timed_call, name, value), rng_seed=rng_seed)
        assert (found.timing, found.check.passed) == (None, False)
        assert name in found.check.reason


def test_a_write_beyond_the_outputs_in_the_last_timed_call_is_incorrect():
    calls = []

    def strays(tensors, shape):
        right(tensors, shape)
        calls.append(shape)
        if len(calls) == 7:
            tensors.lse[0, 0, 0] = 12345.0

    with pytest.raises(CandidateFault, match="it wrote past the end of o"):
        timed(strays, rng_seed=1)  # its lot falls on an earlier call


def test_the_baselines_output_is_gone_when_the_candidate_runs():
    outputs, found = [], []

    def attend(tensors, shape):
        outputs.append(right_o(tensors, shape))
        return outputs[-1]

    def kernel(tensors, shape):
        found.append(bool(outputs[-1].isnan().all()))
        right(tensors, shape)

    timed(kernel, baseline=FakeBaseline(attend=attend), warmups=0)
    assert found == [True] * 6


def test_a_candidate_that_stops_working_once_it_is_timed_is_caught_and_has_no_times():
    calls = []

    def lazy(tensors, shape):
        calls.append(shape)
        if len(calls) < 4:
            right(tensors, shape)

    found, _ = timed(lazy)
    assert found.timing is None
    assert not found.check.passed
    assert found.check.stage == "timed"


@pytest.mark.parametrize("honest", [2, 7])
def test_a_candidate_that_works_in_one_timed_call_only_is_caught(honest):
    """The warm-up is call 1, the timed ones are calls 2 to 7: whichever is right, the others are not."""
    calls = []

    def lazy(tensors, shape):
        calls.append(shape)
        if len(calls) in (1, honest):
            right(tensors, shape)

    found, _ = timed(lazy)
    assert found.timing is None
    assert not found.check.passed


def test_a_warm_up_finds_poisoned_outputs_as_every_other_call_does():
    _, events = timed(warmups=2)
    assert [events[i - 1] for i, event in enumerate(events) if event == "candidate"] == ["poison", "poison"]


def test_the_last_timed_output_is_judged_whoever_went_last():
    for rng_seed in range(6):
        found, _ = timed(rng_seed=rng_seed, repeats=1, least_repeats=1)
        assert found.check.passed, found.check.reason


def test_inputs_written_while_timed_are_incorrect():
    with pytest.raises(CandidateFault, match="wrote to its inputs") as caught:
        timed(KERNELS["writes_its_inputs"])
    assert caught.value.status is Status.INCORRECT


@pytest.mark.parametrize("time_ms", [0.0, -1.0, math.nan, math.inf])
def test_a_clock_that_gives_no_positive_time_is_the_environments_fault(time_ms):
    with pytest.raises(EnvironmentFault, match=f"the clock gave {time_ms} ms"):
        timed(times_ms=[1.0, 1.0, time_ms])


def test_no_time_left_means_the_least_number_of_repeats():
    found, _ = timed(scenario_budget_s=0.0, repeats=20, least_repeats=3)
    assert len(found.timing.candidate_ms) == 3


def test_a_scenario_gets_calls_until_its_interval_is_narrow_enough():
    """A steady clock is known after the least number of calls, a wild one not after the most."""
    steady, _ = timed(times_ms=[1.0], repeats=20, least_repeats=4, precision=0.01)
    assert len(steady.timing.candidate_ms) == 4
    wild, _ = timed(times_ms=[1.0, 5.0, 1.0, 2.0, 9.0, 1.0, 3.0], repeats=20, least_repeats=4, precision=0.01)
    assert len(wild.timing.candidate_ms) == 20
    always, _ = timed(times_ms=[1.0], repeats=20, least_repeats=4)
    assert len(always.timing.candidate_ms) == 20


def spoilt_later(spoil):
    """A baseline that is right while its setting is chosen, in two calls, and then gives what `spoil` makes."""
    calls = []

    def attend(tensors, shape):
        calls.append(shape)
        o = right_o(tensors, shape)
        return o if len(calls) <= 2 else spoil(o)

    return FakeBaseline(attend=attend)


def test_the_difference_from_the_baseline_is_recorded():
    def shift(o):
        o[0, 0, 0, 0] += 0.25
        return o

    found, _ = timed(baseline=spoilt_later(shift))
    assert found.timing.baseline_difference_max == pytest.approx(0.25, rel=0.05)
    elements = 64 * 2 * 32
    assert found.timing.baseline_difference_rms == pytest.approx(0.25 / elements**0.5, rel=0.05)


def test_a_broken_baseline_is_named_with_its_setting():
    with pytest.raises(EnvironmentFault, match=r"the baseline's output \(default\) on b1 .* it is broken here"):
        timed(baseline=spoilt_later(torch.zeros_like))


@pytest.mark.parametrize("factor", [1.2, 0.0, math.nan])
def test_a_baseline_that_computes_another_thing_is_the_environments_fault(factor):
    with pytest.raises(EnvironmentFault, match="the baseline's output"):
        timed(baseline=spoilt_later(lambda o: o * factor))


def test_the_fastest_setting_of_the_baseline_is_compared_with():
    class TwoWays(FakeBaseline):
        def calls(self, tensors, shape):
            return {"slow": lambda: right_o(tensors, shape), "fast": lambda: right_o(tensors, shape)}

    found, events = timed(times_ms=[4.0] * 5 + [3.0] * 1000, baseline=TwoWays())
    assert found.timing.baseline_setting == "fast"
    assert events[2:4] == ["flush", "time baseline"]  # once both have been run and judged
    assert found.timing.baseline_median_ms == 3.0


def test_while_a_call_of_the_candidate_runs_its_own_deadline_holds():
    steps = []
    timed(steps=steps, call_timeout_s=2.0, harness_timeout_s=60.0)
    assert {deadline_s for step, deadline_s in steps if step.party is Party.CANDIDATE} == {2.0}
    assert {deadline_s for step, deadline_s in steps if step.party is Party.HARNESS} == {60.0}
    assert sum(step.activity.startswith("timing the candidate") for step, _ in steps) == 6
    assert steps[-1][0].check is not None
