"""Bulk against single calls and time at other sizes, on the fake device."""

import random

import pytest

from fitness.baselines.fastest import FastestSetting
from fitness.evaluation import Status
from fitness.examination import Examination, examine
from fitness.faults import CandidateFault
from fitness.judge_settings import JudgeSettings
from fitness.plan import SuitePlan
from fitness.watch import Party, Watch
from tests.fitness.fake_device import (
    KERNELS,
    FakeBackend,
    FakeBaseline,
    FakeBaselineReplay,
    binaries,
    plan,
    right,
    scenario,
)

SHAPE, LARGER = scenario(), scenario(batch=2)


def examined(kernel=right, times_ms=(1.0,), bulk_factor=1.0, timed=(SHAPE,), sizes=(), steps=None, backend=FakeBackend):
    backend = backend({**KERNELS, "kernel": kernel}, times_ms)
    backend.bulk_factor = bulk_factor
    suite = SuitePlan(scenarios=tuple(map(plan, timed)), edges=tuple(map(plan, sizes)))
    job = Examination(plan=suite, binaries=binaries(suite, "kernel"), settings=JudgeSettings(), rng_seed=3)
    watch = Watch(lambda step, deadline_s: None if steps is None else steps.append(step), job.settings)
    return examine(job, backend, FastestSetting(FakeBaseline(), backend), watch), backend.events


def test_an_honest_clock_agrees_with_itself():
    found, events = examined(times_ms=[2.0])
    [bulk] = found.bulk
    assert (bulk.candidate_single_ms, bulk.baseline_single_ms) == (2.0, 2.0)
    assert (bulk.candidate_bulk_ms, bulk.baseline_bulk_ms) == (2.0, 2.0)
    assert bulk.agreement == 1.0
    assert found.fault == ""
    assert events.count("time candidate") == events.count("bulk candidate") == 7


def test_a_candidate_that_is_slower_among_many_calls_disagrees():
    """The clock gives, round by round: candidate, baseline, then both in bulk."""
    found, _ = examined(times_ms=[1.0, 2.0, 1.5, 2.0])
    assert found.bulk[0].agreement == pytest.approx(1 / 1.5)


def test_every_timing_begins_with_poisoned_outputs_and_every_single_call_follows_its_like():
    _, events = examined()
    for place, event in enumerate(events):
        if event.startswith("bulk"):
            assert events[place - 1] == "poison"
        if event.startswith("time"):
            side = event.removeprefix("time ")
            assert events[place - 3 : place] == ["poison", "flush", f"enqueue {side}"]


def test_calls_in_a_row_are_of_two_copies_with_other_inputs_by_turns():
    seen = []

    def notes(tensors, shape):
        right(tensors, shape)
        seen.append(float(tensors.q.float().sum()))

    examined(notes)
    last = seen[-4:]  # calls of the last bulk: the twin first
    assert last[0] == last[2] != last[1] == last[3]


def test_so_does_the_baseline():
    class Poisoned(FakeBaselineReplay):
        def time_ms(self):
            found.append(bool(self.output.isnan().all()))
            return super().time_ms()

        def bulk_ms(self, calls, *, behind=None):
            found.append(bool(self.output.isnan().all()))
            return super().bulk_ms(calls, behind=behind)

    class Backend(FakeBackend):
        def capture(self, call):
            return Poisoned(self, call)

    found = []
    examined(backend=Backend)
    assert found == [True] * 14


def test_a_candidate_that_goes_wrong_among_many_calls_is_told():
    calls = []

    def tires(tensors, shape):
        calls.append(shape)
        right(tensors, shape)
        if len(calls) > 3:
            tensors.o.zero_()

    found, _ = examined(tires)
    assert found.bulk == ()
    assert found.fault.endswith(f"calls in a row on {SHAPE.name}: o is not what the baseline gives on the same inputs")


def test_other_sizes_are_timed_from_a_cold_cache_and_judged():
    found, events = examined(times_ms=[3.0, 1.0, 2.0, 5.0, 4.0], timed=(), sizes=(SHAPE, LARGER))
    assert dict(found.scaled_ms) == {SHAPE.name: 3.0, LARGER.name: 3.0}
    assert events.count("flush") == 10


def test_a_candidate_that_is_wrong_at_another_size_is_told():
    def only_small(tensors, shape):
        right(tensors, shape)
        if shape.batch > 1:
            tensors.o.zero_()

    found, _ = examined(only_small, timed=(), sizes=(SHAPE, LARGER))
    assert list(found.scaled_ms) == [SHAPE.name]
    assert found.fault.startswith(f"wrong output on {LARGER.name}: o:")


def test_a_candidate_that_breaks_is_told_and_what_was_measured_kept():
    def breaks(tensors, shape):
        if shape.batch > 1:
            raise CandidateFault(Status.RUNTIME_ERROR, "an illegal address")
        right(tensors, shape)

    found, _ = examined(breaks, sizes=(LARGER,))
    assert (len(found.bulk), found.fault) == (1, "an illegal address")


def test_the_parent_knows_whose_code_runs():
    steps = []
    examined(sizes=(LARGER,), steps=steps)
    activities = [step.activity for step in steps if step.party is Party.CANDIDATE]
    assert f"timing single calls on {SHAPE.name}" in activities
    assert f"timing the candidate on {LARGER.name}" in activities


def test_the_same_seed_draws_the_same_inputs():
    found = [[], []]
    for inputs in found:

        def notes(tensors, shape, inputs=inputs):
            right(tensors, shape)
            inputs.append(float(tensors.q.float().sum()))

        random.seed(1)
        examined(notes, timed=(), sizes=(SHAPE,))
    assert found[0] == found[1]
    assert len(set(found[0])) == 5
