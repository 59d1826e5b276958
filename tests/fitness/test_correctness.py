"""The correctness stage on a fake device: what is checked, in which order, and what never lies in memory."""

import gc
import random
from dataclasses import replace

import pytest
import torch

from fitness.correctness import check_suite
from fitness.evaluation import Status, always_deterministic
from fitness.faults import CandidateFault
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.plan import WorkspacePlan
from fitness.watch import Party, Watch
from tests.fitness.fake_device import KERNELS, FakeBackend, binaries, right, scenario, suite_plan

SHORT, LONG, EDGE = scenario(), scenario(seqlen_q=40, seqlen_k=300), scenario(seqlen_q=3, seqlen_k=3)
PLAN = suite_plan([LONG, SHORT], [EDGE])


def checks_of(kernel, plan=PLAN, settings=None, steps=None, rng_seed=1):
    backend = FakeBackend({**KERNELS, "kernel": kernel})
    settings = settings or JudgeSettings(distributions=(Distribution.NORMAL, Distribution.SMALL))
    watch = Watch(lambda step, deadline_s: None if steps is None else steps.append((step, deadline_s)), settings)
    rng = random.Random(rng_seed)
    return check_suite(plan, binaries(plan, "kernel"), backend, settings, rng, watch)


def test_every_scenario_is_checked_on_the_first_distribution_before_any_on_another_cheapest_first():
    found = [(check.scenario, check.distribution) for check in checks_of(right)]
    assert found == [(each.name, kind) for kind in ("normal", "small") for each in (EDGE, SHORT, LONG)]


def test_a_right_kernel_passes_every_check_on_seeds_that_are_all_different():
    checks = list(checks_of(right, settings=JudgeSettings()))
    assert all(check.passed for check in checks)
    assert len({check.input_seed for check in checks}) == len(checks) == 18
    assert {check.stage for check in checks} == {"correctness"}


def test_the_seeds_follow_from_the_generator():
    seeds = [[check.input_seed for check in checks_of(right, rng_seed=seed)] for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1]
    assert not set(seeds[0]) & set(seeds[2])


def test_of_long_scenarios_the_first_distribution_is_judged_whole_and_some_rows_of_the_others():
    settings = JudgeSettings(long_seqlen_k=300)
    checks = [check for check in checks_of(right, settings=settings) if check.scenario == LONG.name]
    assert [check.distribution for check in checks] == list(Distribution)
    assert [check.stage for check in checks] == ["correctness"] + ["some rows"] * 5
    assert all(check.passed for check in checks)


def test_a_softmax_without_its_maximum_at_long_scenarios_alone_is_caught_by_large_scores():
    def no_maximum(tensors, shape):
        right(tensors, shape)
        if shape.seqlen_k >= 300:
            weights = scores_of(tensors, shape).exp()
            share = (weights / weights.sum(-1, keepdim=True)).nan_to_num(nan=0.0)
            v = tensors.v.float().repeat_interleave(shape.heads // shape.kv_heads, 2)
            tensors.o.copy_(torch.einsum("bhqk,bkhd->bqhd", share, v))

    checks = list(checks_of(no_maximum, settings=JudgeSettings(long_seqlen_k=300)))
    assert [(check.distribution, check.stage) for check in checks if not check.passed] == [("large", "some rows")]
    assert checks[-1].reason.startswith("in queries ")


def scores_of(tensors, shape):
    """Scaled scores `[batch, heads, seqlen_q, seqlen_k]`, those that the mask hides at -inf."""
    k = tensors.k.float().repeat_interleave(shape.heads // shape.kv_heads, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", tensors.q.float(), k) / shape.head_dim**0.5
    offset = shape.seqlen_k - shape.seqlen_q
    hidden = torch.ones(shape.seqlen_q, shape.seqlen_k, dtype=torch.bool).triu(1 + offset)
    return scores.masked_fill(hidden, -torch.inf) if shape.causal else scores


@pytest.mark.parametrize("name", ["zeros", "writes_nothing"])
def test_the_first_wrong_output_ends_it(name):
    checks = list(checks_of(KERNELS[name]))
    assert len(checks) == 1
    assert not checks[0].passed


def test_a_wrong_output_on_the_dear_scenario_alone_is_found():
    def wrong_at_length(tensors, shape):
        right(tensors, shape)
        if shape.seqlen_k == LONG.seqlen_k:
            tensors.o[0, -1] *= 1.1

    checks = list(checks_of(wrong_at_length))
    assert [check.passed for check in checks] == [True, True, False]
    assert checks[-1].scenario == LONG.name


def test_an_output_left_from_the_call_before_is_not_taken_for_this_one():
    calls = []

    def works_once(tensors, shape):
        calls.append(shape)
        if len(calls) == 1:
            right(tensors, shape)

    assert [check.passed for check in checks_of(works_once)] == [True, False]


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("value", [0.5, float("nan")])
def test_writing_an_input_is_incorrect_even_where_the_output_agrees_with_it(name, value):
    def overwrites(tensors, shape):
        getattr(tensors, name)[..., 0] = value
        right(tensors, shape)

    with pytest.raises(CandidateFault) as caught:
        list(checks_of(overwrites))
    assert caught.value.status is Status.INCORRECT
    assert f"wrote to its inputs ({name})" in caught.value.reason
    assert EDGE.name in caught.value.reason


def test_writing_outside_the_outputs_is_incorrect():
    with pytest.raises(CandidateFault, match="it wrote past the end of o") as caught:
        list(checks_of(KERNELS["writes_outside"]))
    assert caught.value.status is Status.INCORRECT


def test_a_fault_of_the_candidate_goes_through_as_it_is():
    with pytest.raises(CandidateFault) as caught:
        list(checks_of(KERNELS["faults"]))
    assert (caught.value.status, caught.value.reason) == (Status.RUNTIME_ERROR, "an illegal address")


def test_outputs_are_poisoned_before_the_candidate_runs():
    seen = []

    def looks(tensors, shape):
        seen.append((bool(tensors.o.isnan().all()), bool(tensors.lse.isnan().all())))
        right(tensors, shape)

    list(checks_of(looks))
    assert seen == [(True, True)] * 7


def test_one_scenario_of_each_build_is_called_twice_and_says_whether_the_bits_agree():
    checks = list(checks_of(right))
    # Not the edge, but the cheapest scenario after it.
    assert [check.deterministic for check in checks] == [None, True, None, None, None, None]
    assert always_deterministic(checks) is True
    assert always_deterministic(checks[:1]) is None


@pytest.mark.parametrize(
    ("workspaces", "distributions", "twice"),
    [
        ((WorkspacePlan(size=8, zeroed=False),), 1, {EDGE, SHORT, LONG}),
        ((None, WorkspacePlan(size=8, zeroed=False)), 2, {EDGE, SHORT, LONG}),
        ((WorkspacePlan(size=8, zeroed=False),), 3, {SHORT}),  # the last two are calls in a row anyway
        ((WorkspacePlan(size=8, zeroed=True),), 1, {SHORT}),
        ((None,), 2, {SHORT}),
    ],
)
def test_two_calls_in_a_row_of_every_scenario_find_what_was_left_in_workspaces(workspaces, distributions, twice):
    plan = replace(
        PLAN,
        scenarios=tuple(replace(each, workspaces=workspaces) for each in PLAN.scenarios),
        edges=tuple(replace(each, workspaces=workspaces) for each in PLAN.edges),
    )
    checks = list(checks_of(right, plan, JudgeSettings(distributions=tuple(Distribution)[:distributions])))
    assert {check.scenario for check in checks if check.deterministic} == {each.name for each in twice}


def test_a_call_that_differs_in_its_bits_alone_is_no_fault():
    calls = []

    def varies(tensors, shape):
        calls.append(shape)
        right(tensors, shape)
        tensors.lse.add_(1e-4 * len(calls))

    checks = list(checks_of(varies))
    assert all(check.passed for check in checks)
    assert always_deterministic(checks) is False


@pytest.mark.parametrize("wrong", [1, 2])
def test_of_two_calls_that_differ_each_must_be_right(wrong):
    calls = []

    def right_once(tensors, shape):
        right(tensors, shape)
        if [*calls, shape].count(SHORT) == wrong:
            tensors.o[0, 5] *= 1.5
        calls.append(shape)

    checks = list(checks_of(right_once))
    assert [check.passed for check in checks] == [True, False]
    assert (checks[-1].scenario, checks[-1].deterministic) == (SHORT.name, False)


def test_each_step_names_who_is_at_work_and_until_when():
    steps = []
    settings = JudgeSettings(distributions=(Distribution.NORMAL,), call_timeout_s=3.0, harness_timeout_s=50.0)
    list(checks_of(right, suite_plan([SHORT]), settings, steps))
    found = [(step.party, deadline_s, step.activity, step.check is not None) for step, deadline_s in steps]
    name = SHORT.name
    assert found == [
        (Party.CANDIDATE, 3.0, f"loading the candidate for {name}", False),
        (Party.HARNESS, 50.0, f"after loading the candidate for {name}", False),
        (Party.CANDIDATE, 3.0, f"running the candidate on {name}, normal inputs", False),
        (Party.HARNESS, 50.0, f"after running the candidate on {name}, normal inputs", False),
        (Party.CANDIDATE, 3.0, f"running the candidate again on {name}, normal inputs", False),
        (Party.HARNESS, 50.0, f"after running the candidate again on {name}, normal inputs", False),
        (Party.HARNESS, 50.0, f"checked {name}, normal inputs", True),
    ]


def test_the_device_memory_holds_no_expected_output_while_the_candidate_runs():
    """The reference of the call before is gone too when the candidate runs again."""
    expected, found = [], []

    def looks_around(tensors, shape):
        right(tensors, shape)
        expected.append(tensors.o.clone())
        tensors.o.fill_(torch.nan)
        own = {id(each) for each in expected}
        everything = [each for each in gc.get_objects() if type(each) is torch.Tensor and id(each) not in own]
        alike = [each for each in everything if each.shape == tensors.o.shape]
        found.extend(each for each in alike if (each.float() - expected[-1].float()).abs().max() < 0.1)
        assert any(each is tensors.q for each in alike)  # the search does see tensors
        tensors.o.copy_(expected[-1])

    shape = replace(SHORT, kv_heads=SHORT.heads, causal=False)
    twice = JudgeSettings(distributions=(Distribution.NORMAL, Distribution.SHIFTED))
    assert [check.passed for check in checks_of(looks_around, suite_plan([shape]), twice)] == [True, True]
    assert found == []
