"""All checks before any timing, every scenario timed, and what is kept where a candidate fails on the way."""

import pytest

from fitness.baselines.fastest import FastestSetting
from fitness.evaluation import Status
from fitness.faults import EnvironmentFault
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.measure import Job, measure
from fitness.race import Bar
from fitness.watch import Watch
from tests.fitness.fake_device import KERNELS, FakeBackend, FakeBaseline, binaries, right, scenario, suite_plan

SCENARIOS = (scenario(), scenario(seqlen_k=96), scenario(causal=False))
PLAN = suite_plan(SCENARIOS, [scenario(seqlen_q=3, seqlen_k=3)])


def measured(kernel=right, times_ms=(1.0,), bar=None, **settings):
    backend = FakeBackend({**KERNELS, "kernel": kernel}, times_ms)
    settings = JudgeSettings(
        **{"distributions": (Distribution.NORMAL,), "repeats": 5, "warmups": 1, "bootstrap_draws": 50, **settings}
    )
    job = Job(plan=PLAN, binaries=binaries(PLAN, "kernel"), settings=settings, rng_seed=1, bar=bar)
    watch = Watch(lambda step, deadline_s: None, settings)
    return measure(job, backend, FastestSetting(FakeBaseline(), backend), watch), backend.events


def test_a_right_candidate_has_a_check_and_a_timing_for_every_scenario():
    found, _ = measured()
    assert (found.status, found.reason) == (Status.PASSED, "")
    assert [timing.scenario for timing in found.timings] == [each.name for each in SCENARIOS]
    assert [check.stage for check in found.checks] == ["correctness"] * 4 + ["timed"] * 3
    assert found.left_intact
    assert found.check_s > 0
    assert found.time_s > 0


def test_nothing_is_timed_before_everything_is_checked():
    _, events = measured()
    assert events.index("time candidate") > 4
    assert events[: events.index("flush")].count("candidate") == 4 + 1 + 1  # checks, one twice, and the first warm-up


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("zeros", Status.INCORRECT, "wrong output on b1 h2/1 s3 d32 causal bf16, normal inputs: o: largest error"),
        ("writes_nothing", Status.INCORRECT, "NaN"),
        ("writes_its_inputs", Status.INCORRECT, "wrote to its inputs (k)"),
        ("writes_outside", Status.INCORRECT, "wrote past the end of o"),
        ("faults", Status.RUNTIME_ERROR, "an illegal address"),
    ],
)
def test_a_bad_candidate_has_its_status_and_a_reason_and_is_never_timed(name, status, reason):
    found, events = measured(KERNELS[name])
    assert found.status is status
    assert reason in found.reason
    assert found.timings == ()
    assert found.time_s == 0.0
    assert "time candidate" not in events


def test_a_wrong_output_leaves_the_process_as_it_was_and_other_faults_may_not():
    found = {name: measured(KERNELS[name])[0].left_intact for name in ("zeros", "writes_outside", "faults")}
    assert found == {"zeros": True, "writes_outside": False, "faults": False}


def test_a_candidate_that_is_wrong_only_when_timed_keeps_its_checks_and_no_times():
    calls = []

    def lazy(tensors, shape):
        calls.append(shape)
        if len(calls) <= 5:
            right(tensors, shape)

    found, _ = measured(lazy)
    assert found.status is Status.INCORRECT
    assert "after it was timed" in found.reason
    assert [check.passed for check in found.checks] == [True] * 4 + [False]
    assert found.timings == ()


def test_what_cannot_reach_the_bar_is_stopped_early_with_the_timings_so_far():
    ceilings = {each.name: 2.0 for each in SCENARIOS}
    found, _ = measured(bar=Bar(geomean=1.5, ceilings=ceilings))  # 1, then at most 2 and 2: 1.587
    assert found.status is Status.STOPPED_EARLY
    assert found.reason.startswith("after 2 of 3 scenarios, speedup 1.000 on the last")  # 1, 1 and at most 2: 1.26
    assert [timing.scenario for timing in found.timings] == [each.name for each in SCENARIOS[:2]]
    assert found.left_intact
    found, _ = measured(bar=Bar(geomean=1.2, ceilings=ceilings))  # in reach until nothing is left to be timed
    assert found.status is Status.PASSED


def test_a_clock_of_zero_is_nobodys_score():
    with pytest.raises(EnvironmentFault, match="the clock gave 0"):
        measured(times_ms=[0.0])


def test_the_same_seed_measures_on_the_same_inputs():
    seeds = [[check.input_seed for check in measured()[0].checks] for _ in range(2)]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 7
