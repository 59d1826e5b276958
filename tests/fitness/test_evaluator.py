"""The order of the stages, and the record of a candidate that fails in each of them. Fakes compile and measure."""

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.compiler import CompiledBuild
from fitness.evaluation import BuildReport, Environment, Evaluation, KernelResources, ScenarioTiming, Status
from fitness.evaluator import Evaluator, Target
from fitness.faults import CandidateFault, DoubtfulFault, EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.measure import Measured
from fitness.scenario import Suite
from tests.fitness.fake_device import scenario

SOURCE = """/*evo
contract = 1
name = "nothing"
targets = ["portable"]
supports = "head_dim <= 64"

[defines]
HEAD_DIM = "head_dim"

[[launch]]
kernel = "attention"
grid = ["seqlen_q", "heads", "batch"]
block = ["32"]
*/
#include "attention.cuh"
extern "C" __global__ void attention(const __grid_constant__ AttentionParams params) {}
"""
SUITE = Suite(
    name="two", scenarios=(scenario(), scenario(head_dim=64)),
    edges=(scenario(seqlen_q=3, seqlen_k=3), scenario(head_dim=128)),
)  # fmt: skip
ENVIRONMENT = Environment(
    backend="host", device="a processor", driver="", compiler="fake 1", baseline="fake", baseline_version="fake 1"
)
TARGET = Target(
    names=frozenset({"portable"}), sm_count=4, environment=ENVIRONMENT, compiling_disturbs=False
)


class FakeCompiler:
    """Says what stands behind the source's last //."""

    version = "fake 1"
    flags = ("-O2",)

    def __init__(self):
        self.compiled = []

    def compile(self, source, builds):
        word = source.rpartition("//")[2].strip()
        self.compiled.append(word)
        if word == "broken":
            raise CandidateFault(Status.COMPILE_ERROR, "error: expected ';'")
        if word == "disk full":
            raise EnvironmentFault("no space left on device")
        advisories = ("wgmma.mma_async instructions are serialized due to …",) if word.startswith("serial") else ()
        report = BuildReport(name="all", kernels=(), advisories=advisories)
        return tuple(CompiledBuild(build=build, binary=Path(word), report=report) for build in builds)


class FakeWorker:
    """Measures 1 ms against 2 ms, unless told another outcome."""

    def __init__(self, outcomes=None):
        self.outcomes = outcomes or {}
        self.jobs = []
        self.at_work = 0

    def measure(self, job):
        self.at_work += 1
        assert self.at_work == 1, "two candidates at once"
        self.jobs.append(job)
        word = next(iter(job.binaries.values())).name
        outcome = self.outcomes.get(word)
        self.at_work -= 1
        if isinstance(outcome, Exception):
            raise outcome
        timings = tuple(timing(plan.scenario.name) for plan in job.plan.scenarios)
        return outcome or Measured(status=Status.PASSED, reason="", timings=timings, check_s=1.0, time_s=2.0)


def timing(name):
    return ScenarioTiming(
        scenario=name, candidate_ms=(1.0, 1.0), baseline_ms=(2.0, 2.0), candidate_median_ms=1.0, baseline_median_ms=2.0,
        speedup=2.0, speedup_low=2.0, speedup_high=2.0, tflops=1.0, baseline_difference_max=0.0,
        baseline_difference_rms=0.0,
    )  # fmt: skip


def source(word):
    return f"{SOURCE}// {word}\n"


def evaluator(worker=None, compiler=None, *, target=TARGET, may_run=lambda source: True, **rest):
    return Evaluator(
        suite=SUITE, target=target, compiler=compiler or FakeCompiler(), worker=worker or FakeWorker(),
        settings=JudgeSettings(bootstrap_draws=10), may_run=may_run, **rest,
    )  # fmt: skip


def test_a_right_candidate_passes_with_its_score():
    found = evaluator().evaluate(source("right"))
    assert (found.status, found.reason, found.geomean) == (Status.PASSED, "", 2.0)
    assert (found.geomean_low, found.geomean_high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert found.speedups == {each.name: 2.0 for each in SUITE.scenarios}
    assert (found.suite, found.environment) == ("two", ENVIRONMENT)
    assert (found.check_s, found.time_s) == (1.0, 2.0)
    assert [build.name for build in found.builds] == ["all", "all"]


def test_the_job_holds_every_scenario_the_edges_it_supports_and_a_binary_for_each():
    worker = FakeWorker()
    evaluator(worker).evaluate(source("right"))
    plan = worker.jobs[0].plan
    assert [each.scenario for each in plan.scenarios] == list(SUITE.scenarios)
    assert [each.scenario for each in plan.edges] == [SUITE.edges[0]]
    assert {each.build for each in (*plan.scenarios, *plan.edges)} == set(worker.jobs[0].binaries)


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("int x;", Status.INVALID, "manifest"),
        ("", Status.INVALID, "manifest"),
        ("\ud800", Status.INVALID, ""),
        (source("right").replace("void attention(", "void other("), Status.INVALID, "attention"),
        (source("right").replace('"attention.cuh"', '"cutlass/cutlass.h"'), Status.INVALID, "cutlass"),
        (source("right").replace("head_dim <= 64", "head_dim <= 32"), Status.UNSUPPORTED, "d64"),
        (source("right").replace('"portable"', '"sm_90a"'), Status.UNSUPPORTED, "targets sm_90a; a processor runs"),
        (source("broken"), Status.COMPILE_ERROR, "expected ';'"),
    ],
)
def test_a_bad_candidate_is_a_record_and_reaches_no_device(text, status, reason):
    worker = FakeWorker()
    found = evaluator(worker).evaluate(text)
    assert found.status is status
    assert reason in found.reason
    assert found.geomean is None
    assert worker.jobs == []


def test_what_may_not_run_is_not_even_compiled():
    compiler = FakeCompiler()
    found = evaluator(compiler=compiler, may_run=lambda source: False).evaluate(source("right"))
    assert found.status is Status.INVALID
    assert "backend.run_model_code=true" in found.reason
    assert compiler.compiled == []


def test_what_the_worker_found_wrong_is_recorded_with_the_builds():
    outcome = Measured(status=Status.INCORRECT, reason="wrong output on …")
    found = evaluator(FakeWorker({"wrong": outcome})).evaluate(source("wrong"))
    assert (found.status, found.reason, found.geomean) == (Status.INCORRECT, "wrong output on …", None)
    assert len(found.builds) == 2


def test_partial_timings_are_kept_without_a_score():
    outcome = Measured(status=Status.STOPPED_EARLY, reason="slow", timings=(timing(SUITE.scenarios[0].name),))
    found = evaluator(FakeWorker({"slow": outcome})).evaluate(source("slow"))
    assert (found.status, found.geomean, len(found.timings)) == (Status.STOPPED_EARLY, None, 1)
    assert found.speedups == {}


def test_a_pass_without_a_scenario_is_no_pass():
    outcome = Measured(status=Status.PASSED, reason="", timings=(timing(SUITE.scenarios[0].name),))
    with pytest.raises(ValueError, match="1 timings for the 2 scenarios"):
        evaluator(FakeWorker({"short": outcome})).evaluate(source("short"))


def test_many_come_back_in_their_own_order_and_are_heard_of_as_they_finish():
    words = ["serial a", "right b", "broken", "right c"]
    worker, heard = FakeWorker(), []
    found = evaluator(worker).evaluate_all(
        [source(word) for word in words], lambda index, evaluation: heard.append((index, evaluation))
    )
    assert [each.status for each in found] == [Status.PASSED, Status.PASSED, Status.COMPILE_ERROR, Status.PASSED]
    assert [index for index, _ in heard] == [1, 2, 3, 0]  # the one that will collapse comes last
    assert all(found[index] is evaluation for index, evaluation in heard)
    assert [next(iter(job.binaries.values())).name for job in worker.jobs] == ["right b", "right c", "serial a"]


def test_none_give_none():
    assert evaluator().evaluate_all([]) == []


@pytest.mark.parametrize("disturbs", [True, False])
def test_compiling_runs_ahead_and_is_over_before_the_timing_where_it_would_disturb(disturbs):
    started, compiler = threading.Event(), FakeCompiler()

    class Slow(FakeCompiler):
        def compile(self, source, builds):
            if "second" in source and not disturbs:
                assert started.wait(10), "the first is not measured before the second is compiled"
            return compiler.compile(source, builds)

    class Watching(FakeWorker):
        def measure(self, job):
            started.set()
            if disturbs:
                assert sorted(compiler.compiled) == ["first", "second"]
            return super().measure(job)

    judge = evaluator(Watching(), Slow(), target=replace(TARGET, compiling_disturbs=disturbs))
    assert [each.geomean for each in judge.evaluate_all([source("first"), source("second")])] == [2.0, 2.0]


@pytest.mark.parametrize("word", ["disk full", "worker gone"])
def test_an_environments_fault_stops_it_all_and_blames_no_candidate(word):
    heard = []
    judge = evaluator(FakeWorker({"worker gone": EnvironmentFault("gone")}))
    with pytest.raises(EnvironmentFault, match=r"no space left|gone"):
        judge.evaluate_all([source("right"), source(word), source("right")], lambda *done: heard.append(done))
    assert [evaluation.status for _, evaluation in heard] == [Status.PASSED]


class Failing(FakeWorker):
    """Raises what is left of `faults`, one a candidate named deadly."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)

    def measure(self, job):
        found = super().measure(job)
        if self.faults and next(iter(job.binaries.values())).name == "deadly":
            raise self.faults.pop(0)
        return found


SOURCES = [source(word) for word in ("right", "deadly", "right too")]


def test_a_candidate_that_ends_two_workers_is_a_runtime_error_and_ends_no_run():
    worker = Failing(DoubtfulFault("the reference crashed"), DoubtfulFault("the baseline crashed"))
    found = evaluator(worker).evaluate_all(SOURCES)
    assert [each.status for each in found] == [Status.PASSED, Status.RUNTIME_ERROR, Status.PASSED]
    assert found[1].reason == (
        "it ended two workers, and one of them at least was well again at once: the reference crashed; the baseline "
        "crashed"
    )
    assert [build.name for build in found[1].builds] == ["all", "all"]


def test_one_that_met_a_failing_worker_once_is_measured_by_the_next():
    worker = Failing(DoubtfulFault("the driver gave up"))
    assert [each.status for each in evaluator(worker).evaluate_all(SOURCES)] == [Status.PASSED] * 3
    assert len(worker.jobs) == 4


def test_one_by_itself_is_measured_as_patiently():
    worker = Failing(*(DoubtfulFault("the reference crashed") for _ in range(2)))
    assert evaluator(worker).evaluate(source("deadly")).status is Status.RUNTIME_ERROR
    assert worker.faults == []


@pytest.mark.parametrize("before", [[], [DoubtfulFault("the driver gave up")]])
def test_what_no_candidate_can_cause_is_raised_at_once(before):
    worker = Failing(*before, EnvironmentFault("no GPU here"))
    with pytest.raises(EnvironmentFault, match="no GPU here"):
        evaluator(worker).evaluate_all(SOURCES)
    assert worker.faults == []


def test_the_job_tells_the_largest_stack_of_a_kernel():
    class Compiler(FakeCompiler):
        def compile(self, text, builds):
            first, *rest = super().compile(text, builds)
            kernels = tuple(
                KernelResources(
                    kernel=name, registers=8, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=stack, shared_bytes=0
                )
                for name, stack in (("attention", 64), ("other", 400_000), ("third", 32))
            )
            return (replace(first, report=replace(first.report, kernels=kernels)), *rest)

    worker = FakeWorker()
    for compiler in (FakeCompiler(), Compiler()):
        evaluator(worker, compiler).evaluate(source("right"))
    assert [job.stack_bytes for job in worker.jobs] == [0, 400_000]


def test_inputs_are_secret_unless_a_generator_is_given():
    def seeds(**rest):
        worker = FakeWorker()
        evaluator(worker, **rest).evaluate_all([source("a"), source("b")])
        return [job.rng_seed for job in worker.jobs]

    assert seeds(rng=random.Random(1)) == seeds(rng=random.Random(1))
    assert len({*seeds(), *seeds()}) == 4


def test_the_key_says_what_was_measured_and_how():
    judge = evaluator()
    assert judge.evaluate(source("right")).key == judge.key(source("right")) == evaluator().key(source("right"))
    other = replace(TARGET, environment=replace(ENVIRONMENT, baseline_version="fake 2"))
    newer, bolder = FakeCompiler(), FakeCompiler()
    newer.version, bolder.flags = "fake 1.0.1", ("-O3",)
    keys = {
        judge.key(source("right")), judge.key(source("right") + " "), evaluator(target=other).key(source("right")),
        evaluator(compiler=newer).key(source("right")), evaluator(compiler=bolder).key(source("right")),
    }  # fmt: skip
    assert len(keys) == 5
    driver = replace(TARGET, environment=replace(ENVIRONMENT, driver="581"))
    assert evaluator(target=driver).key(source("right")) == judge.key(source("right"))


def untimed(*edges):
    return evaluator().on(Suite(name="edges", scenarios=(), edges=edges), JudgeSettings(bootstrap_draws=10))


def test_on_a_suite_that_is_not_timed_to_pass_is_to_be_right_and_has_no_score():
    found = untimed(scenario(), scenario(head_dim=128)).evaluate(source("right"))
    assert (found.status, found.geomean, found.timings, found.timed) == (Status.PASSED, None, (), False)
    assert found.worst is None
    assert Evaluation.from_json(found.to_json()) == found


def test_a_suite_of_shapes_that_are_all_outside_supports_is_unsupported():
    found = untimed(scenario(head_dim=128)).evaluate(source("right"))
    assert found.status is Status.UNSUPPORTED
    assert found.reason == "none of the 1 shapes of edges lies within supports = 'head_dim <= 64'"


def test_a_timed_suite_is_not_passed_without_its_timings():
    worker = FakeWorker({"right": Measured(status=Status.PASSED, reason="")})
    with pytest.raises(ValueError, match="0 timings for the 2 scenarios"):
        evaluator(worker).evaluate(source("right"))
