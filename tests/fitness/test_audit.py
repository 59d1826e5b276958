"""The order of an audit's checks and what each holds against a candidate. Fakes compile, measure and examine."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.audit import Auditor, FullSuite, scaled
from fitness.audit_record import Finding
from fitness.evaluation import KernelResources, Status
from fitness.examination import BulkTiming, Examined
from fitness.faults import BaselineUnavailableError
from fitness.judge_settings import JudgeSettings
from fitness.measure import Measured
from fitness.roof import Roof
from fitness.sanitizer import TOOLS, Sanitizer
from fitness.scenario import Suite
from fitness.worker import BaselineFacts
from tests.fitness.fake_device import scenario
from tests.fitness.test_evaluator import SUITE, TARGET, FakeCompiler, FakeWorker, evaluator, source, timing

ROOF = Roof(tflops=1.0, gb_per_s=1000.0)
FULL = FullSuite(
    suite=Suite(name="full", scenarios=(scenario(seqlen_q=96, seqlen_k=96),)),
    settings=JudgeSettings(bootstrap_draws=10),
)


class Device(FakeWorker):
    """Answers examinations in turn by `bulk` (agreement by scenario) and `scaled` (milliseconds by batch)."""

    def __init__(self, *, bulk=({},), scaled=None, fault="", refuses="", outcomes=None):
        super().__init__(outcomes)
        self.bulk, self.scaled, self.fault, self.refuses = list(bulk), scaled or {}, fault, refuses
        self.examined = []

    def baseline(self, suite):
        if self.refuses:
            raise BaselineUnavailableError(self.refuses)
        return BaselineFacts(name="fake", version="1", roof=ROOF)

    def examine(self, job):
        self.examined.append(job)
        if not job.plan.scenarios:
            times = {each.scenario.name: self.scaled.get(each.scenario.batch, 1.0) for each in job.plan.edges}
            return Examined(scaled_ms=times, fault=self.fault)
        agreements = self.bulk.pop(0) if self.bulk else {}
        names = [each.scenario.name for each in job.plan.scenarios]
        return Examined(bulk=tuple(in_bulk(name, agreements.get(name, 1.0)) for name in names), scaled_ms={})


def in_bulk(name, agreement, milliseconds=1.0):
    return BulkTiming(
        scenario=name, candidate_single_ms=milliseconds, baseline_single_ms=2 * milliseconds,
        candidate_bulk_ms=milliseconds / agreement, baseline_bulk_ms=2 * milliseconds,
    )  # fmt: skip


def auditor(device, *, on_gpu=True, full=None, roof=None, compiler=None):
    judge = evaluator(device, compiler, target=replace(TARGET, roof=roof))
    rng = random.Random(1)
    return Auditor(judge, device, on_gpu=on_gpu, sanitizer=Sanitizer(None, {}), full=full, rng=rng), judge


def audited(device, word="right", **rest):
    auditing, judge = auditor(device, **rest)
    return {check.name: check for check in auditing.audit(source(word), judge.evaluate(source(word)))}


def test_an_examination_tells_the_largest_stack_of_a_kernel():
    class Compiler(FakeCompiler):
        def compile(self, text, builds):
            kernel = KernelResources(
                kernel="attention", registers=8, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=400_000,
                shared_bytes=0,
            )  # fmt: skip
            compiled = super().compile(text, builds)
            return tuple(replace(each, report=replace(each.report, kernels=(kernel,))) for each in compiled)

    device = Device()
    audited(device, compiler=Compiler())
    assert {job.stack_bytes for job in device.examined} == {400_000}


def test_on_a_gpu_every_check_is_made_or_says_why_not():
    found = audited(Device())
    assert list(found) == [
        "new inputs", "bulk against single calls", "time against work", "cycles inside against time outside", *TOOLS
    ]  # fmt: skip
    assert [check.finding for check in found.values()] == [Finding.PASSED] * 3 + [Finding.SKIPPED] * 4
    assert found["new inputs"].detail == "right again; 2.0000 × the baseline, 2.0000 × before"
    assert found["bulk against single calls"].detail == "the speedups of 2 scenarios agree within 5%"


def test_on_a_processor_new_inputs_are_all_and_the_rest_is_skipped():
    device = Device()
    first, *rest = audited(device, on_gpu=False).values()
    assert (first.name, first.finding) == ("new inputs", Finding.PASSED)
    assert [check.name for check in rest] == list(audited(Device()))[1:]
    assert {(check.finding, check.detail) for check in rest} == {(Finding.NOT_DUE, "there is no GPU here")}
    assert len({job.rng_seed for job in device.jobs}) == 2  # other inputs than those that it was measured on
    assert device.examined == []


def test_a_kernel_that_is_wrong_on_new_inputs_fails_and_nothing_more_is_asked():
    device = Device()
    auditing, judge = auditor(device)
    evaluation = judge.evaluate(source("right"))
    device.outcomes = {"right": Measured(status=Status.INCORRECT, reason="wrong output on …")}
    [check] = auditing.audit(source("right"), evaluation)
    assert (check.finding, check.detail) == (Finding.FAILED, "INCORRECT: wrong output on …")


@pytest.mark.parametrize(("on_gpu", "finding"), [(True, Finding.FAILED), (False, Finding.PASSED)])
def test_a_speed_that_does_not_come_again_fails_where_the_clock_is_steady(on_gpu, finding):
    auditing, judge = auditor(Device(), on_gpu=on_gpu)
    lucky = replace(judge.evaluate(source("right")), geomean=2.2)
    assert auditing.audit(source("right"), lucky)[0].finding is finding


def remeasured(*found):
    """The first check of a right kernel that was 2.0 times as fast, and how often it was measured for it."""
    class Uneven(Device):
        def measure(self, job):
            self.outcomes = {"right": outcomes.pop(0)}
            return super().measure(job)

    outcomes = [measured(2.0), *found]
    device = Uneven()
    auditing, judge = auditor(device)
    check = auditing.audit(source("right"), judge.evaluate(source("right")))[0]
    return check.finding, check.detail, len(device.jobs) - 1


def measured(speedup):
    timings = tuple(
        replace(timing(each.name), baseline_ms=(speedup, speedup), baseline_median_ms=speedup, speedup=speedup)
        for each in SUITE.scenarios
    )
    return Measured(status=Status.PASSED, reason="", timings=timings)


def test_one_speed_off_is_an_accident():
    detail = "right again; 1.8000 and 2.0500 × the baseline, 2.0000 × before"
    assert remeasured(measured(1.8), measured(2.05)) == (Finding.PASSED, detail, 2)


def test_a_speed_that_comes_again_is_measured_once():
    assert remeasured(measured(1.95))[::2] == (Finding.PASSED, 1)


def test_a_speed_that_is_off_twice_fails():
    detail = "right again; 1.8000 and 2.2000 × the baseline, 2.0000 × before"
    assert remeasured(measured(1.8), measured(2.2)) == (Finding.FAILED, detail, 2)


@pytest.mark.parametrize(
    ("speedup", "finding"), [(1.91, Finding.PASSED), (1.89, Finding.FAILED), (2.11, Finding.FAILED)]
)
def test_a_speed_may_be_off_by_a_twentieth_and_no_more(speedup, finding):
    assert remeasured(measured(speedup), measured(speedup))[0] is finding


def test_a_second_measurement_that_is_wrong_fails():
    wrong = Measured(status=Status.INCORRECT, reason="wrong output")
    assert remeasured(measured(1.8), wrong) == (Finding.FAILED, "INCORRECT: wrong output", 2)


def test_a_speedup_that_bulk_denies_twice_fails():
    name = SUITE.scenarios[1].name
    device = Device(bulk=[{name: 0.8}, {name: 0.85}])
    found = audited(device)["bulk against single calls"]
    assert (found.finding, found.detail) == (
        Finding.FAILED,
        f"on {name} the speedup in bulk is 0.850 times that of single calls (a call alone and in bulk: 1.0000 and "
        "1.1765 ms, the baseline's 2.0000 and 2.0000 ms)",
    )
    assert [each.scenario.name for each in device.examined[1].plan.scenarios] == [name]


@pytest.mark.parametrize("side", ["candidate_single_ms", "baseline_single_ms"])
def test_a_scenario_that_either_side_does_within_a_twentieth_of_a_millisecond_is_no_evidence(side):
    """There it is launching that takes the time."""
    name = SUITE.scenarios[1].name

    class Short(Device):
        def examine(self, job):
            found = super().examine(job)
            bulk = (replace(each, **{side: 0.05}) if each.scenario == name else each for each in found.bulk)
            return replace(found, bulk=tuple(bulk))

    found = audited(Short(bulk=[{name: 0.5}, {name: 0.5}]))["bulk against single calls"]
    assert (found.finding, found.detail) == (
        Finding.PASSED,
        "the speedups of 1 scenarios agree within 5%; the others take less than 0.05 ms, or move more than 4 GiB",
    )


def test_where_every_scenario_is_too_short_bulk_says_nothing():
    class Short(Device):
        def examine(self, job):
            found = super().examine(job)
            return replace(found, bulk=tuple(replace(each, candidate_single_ms=0.01) for each in found.bulk))

    assert audited(Short())["bulk against single calls"].finding is Finding.SKIPPED


def test_one_bad_bulk_is_an_accident():
    found = audited(Device(bulk=[{SUITE.scenarios[0].name: 1.2}, {}]))["bulk against single calls"]
    assert found.finding is Finding.PASSED


def test_a_fault_in_an_examination_fails():
    assert audited(Device(fault="an illegal address"))["time against work"].detail == "an illegal address"


def test_time_that_falls_as_the_work_grows_fails():
    """Batches of 1, 2 and 4; head_dim 64 and 32 alike."""
    found = audited(Device(scaled={1: 1.0, 2: 1.0, 4: 0.5}))["time against work"]
    assert found.finding is Finding.FAILED
    assert found.detail.endswith("takes 0.5000 ms, and b1 h2/1 s64 d32 causal bf16 1.0000 ms")


def test_a_size_above_the_roof_fails():
    """b4 h2/1 s64 d64 reads and writes 198656 bytes: 0.000199 ms at 1000 GB/s."""
    found = audited(Device(scaled={1: 0.001, 2: 0.001, 4: 0.0001}), roof=ROOF)["time against work"]
    assert found.finding is Finding.FAILED
    assert "times the roof of the device" in found.detail


def test_sizes_that_the_candidate_does_not_support_are_not_due():
    class Picky(FakeCompiler):
        def compile(self, text, builds):
            self.compiled.append(builds)
            return super().compile(text, builds)

    outside = source("right").replace('supports = "head_dim <= 64"', 'supports = "head_dim <= 64 and batch == 1"')
    device = Device()
    auditing, judge = auditor(device, compiler=Picky())
    checks = {check.name: check for check in auditing.audit(outside, judge.evaluate(outside))}
    assert checks["time against work"].finding is Finding.NOT_DUE
    assert "UNSUPPORTED" in checks["time against work"].detail


def test_a_suite_that_is_too_large_to_be_scaled_is_skipped():
    """b4 h64 s16384 d128 moves four tensors of 1 GiB each, and four times as much at four times its batch."""
    large = scenario(batch=4, heads=64, kv_heads=64, seqlen_q=16384, seqlen_k=16384, head_dim=128)
    device = Device()
    judge = evaluator(device).on(Suite(name="large", scenarios=(large,)), JudgeSettings(bootstrap_draws=10))
    auditing = Auditor(judge, device, on_gpu=True, sanitizer=Sanitizer(None, {}), rng=random.Random(1))
    text = source("right").replace("head_dim <= 64", "head_dim <= 128")
    found = {check.name: check for check in auditing.audit(text, judge.evaluate(text))}
    assert found["time against work"].finding is Finding.SKIPPED
    assert found["time against work"].detail == "at 4 times its batch every scenario moves more than 8 GiB"
    assert set(found) > set(TOOLS)


def test_the_fastest_scenarios_are_scaled_in_batch_within_memory():
    huge = scenario(batch=2**20, seqlen_q=512, seqlen_k=512)
    slow, fast = scenario(), scenario(head_dim=64)
    suite = Suite(name="three", scenarios=(huge, slow, fast))
    speeds = {huge.name: 9.0, slow.name: 1.0, fast.name: 2.0}
    evaluation = replace(
        evaluator().evaluate(source("right")),
        timings=tuple(replace(timing(name), speedup=speed) for name, speed in speeds.items()),
    )
    assert [[each.batch for each in family] for family in scaled(suite, evaluation)] == [[1, 2, 4], [1, 2, 4]]
    assert [family[0] for family in scaled(suite, evaluation)] == [fast, slow]


def test_a_champion_is_held_to_the_full_suite():
    device = Device()
    auditing, _ = auditor(device, full=FULL)
    [check] = auditing.audit_champion(source("right"))
    assert (check.name, check.finding, check.detail) == (
        "full", Finding.PASSED, "right on 1 scenarios, 2.0000 × fake"
    )  # fmt: skip
    assert device.jobs[-1].settings == FULL.settings
    assert auditor(device)[0].audit_champion(source("right")) == ()


@pytest.mark.parametrize(
    ("status", "finding"),
    [(Status.INCORRECT, Finding.FAILED), (Status.TIMEOUT, Finding.FAILED), (Status.UNSUPPORTED, Finding.NOT_DUE)],
)
def test_what_the_full_suite_holds_against_a_champion(status, finding):
    device = Device(outcomes={"right": Measured(status=status, reason="so it is")})
    [check] = auditor(device, full=FULL)[0].audit_champion(source("right"))
    assert (check.finding, check.detail) == (finding, f"{status}: so it is")


def test_a_full_suite_that_the_baseline_cannot_do_is_skipped():
    [check] = auditor(Device(refuses="bf16 only"), full=FULL)[0].audit_champion(source("right"))
    assert (check.finding, check.detail) == (Finding.SKIPPED, "bf16 only")


def test_the_sanitizer_gets_a_small_scenario_of_each_build():
    asked = []

    class Listening(Sanitizer):
        def check(self, tool, job):
            asked.append(job)
            return super().check(tool, job)

    device = Device()
    judge = evaluator(device)
    auditing = Auditor(judge, device, on_gpu=True, sanitizer=Listening(None, {}), device_index=3)
    auditing.audit(source("right"), judge.evaluate(source("right")))
    assert len(asked) == len(TOOLS)
    assert asked[0].device_index == 3
    names = [plan.scenario.name for plan, _ in asked[0].plans]
    assert names == ["b1 h2/1 s64 d32 causal bf16", "b1 h2/1 s64 d64 causal bf16"]
    assert {binary for _, binary in asked[0].plans} == {Path("right")}


def test_what_has_no_room_for_a_twin_is_not_timed_in_bulk():
    device = Device()
    large = scenario(batch=1 << 14, seqlen_q=4096, seqlen_k=4096)
    judge = evaluator(device, target=replace(TARGET, roof=ROOF))
    wide = judge.on(Suite(name="wide", scenarios=(*SUITE.scenarios, large)), judge.settings)
    auditing = Auditor(wide, device, on_gpu=True, sanitizer=Sanitizer(None, {}), rng=random.Random(1))
    found = {check.name: check for check in auditing.audit(source("right"), wide.evaluate(source("right")))}
    assert large.name not in {plan.scenario.name for plan in device.examined[0].plan.scenarios}
    assert found["bulk against single calls"].detail == (
        "the speedups of 2 scenarios agree within 5%; the others take less than 0.05 ms, or move more than 4 GiB"
    )
