"""What the check of the clocks inside says, and that nothing that goes wrong with stamps is the candidate's fault."""

from dataclasses import replace

import pytest

from fitness.audit_record import Finding
from fitness.clock_check import SCENARIOS, ClockCheck
from fitness.clocked import ClockedCall, ClockedScenario, Span
from fitness.evaluation import Status
from fitness.examination import Examined
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.scenario import Suite
from tests.fitness.fake_device import scenario
from tests.fitness.test_evaluator import FakeCompiler, FakeWorker, evaluator, source, timing

SHAPES = tuple(scenario(batch=batch, head_dim=dim) for batch in (1, 2) for dim in (32, 64))
PTX = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry {name}()\n{{\nret;\n}}\n"
LAUNCHED = "attention"


class GivesPtx(FakeCompiler):
    """Its PTX holds a kernel of this name, or is a fault."""

    def __init__(self, name=LAUNCHED, fault=None):
        super().__init__()
        self.name, self.fault = name, fault

    def ptx(self, source, build):
        if self.fault:
            raise self.fault
        return PTX.format(name=self.name)


class Clocks(FakeWorker):
    """Every call takes 1 ms outside with stamps and `plain_ms` without, and is at work for `inside_ms`."""

    def __init__(self, *, inside_ms=0.9, plain_ms=1.0, plain_fault="", fault=""):
        super().__init__()
        self.inside_ms, self.plain_ms, self.plain_fault, self.fault = inside_ms, plain_ms, plain_fault, fault
        self.examined, self.texts = [], []

    def examine(self, job):
        self.examined.append(job)
        if not job.stamped:
            if isinstance(self.plain_fault, Exception) and len(self.examined) > 1:
                raise self.plain_fault
            times = {each.scenario.name: self.plain_ms for each in job.plan.edges}
            return Examined(scaled_ms=times, fault="" if isinstance(self.plain_fault, Exception) else self.plain_fault)
        self.texts += [path.read_text() for path in job.binaries.values()]
        if isinstance(self.fault, Exception):
            raise self.fault
        return Examined(scaled_ms={}, clocked=tuple(map(self.clocked, job.plan.scenarios)), fault=self.fault)

    def clocked(self, plan):
        span = Span(cycles=1000, nanoseconds=round(self.inside_ms * 1e6))
        call = ClockedCall(span=span, outside_ms=1.0, sm_mhz=1900.0)
        return ClockedScenario(scenario=plan.scenario.name, launches=1, peak_mhz=1980.0, calls=(call,) * 3)


def checked(worker=None, compiler=None, *, milliseconds=1.0):
    worker = worker or Clocks()
    judge = evaluator(worker, compiler or GivesPtx())
    judge = judge.on(Suite(name="four", scenarios=SHAPES), judge.settings)
    compiled = judge.compile(source("right"))
    timings = tuple(
        replace(timing(each.name), candidate_median_ms=milliseconds, speedup=2.0 + number)
        for number, each in enumerate(SHAPES)
    )
    evaluation = replace(judge.evaluate(source("right")), timings=timings)
    found = ClockCheck(compiled, judge, worker, 5).check(evaluation)
    assert found.name == "cycles inside against time outside"
    return found.finding, found.detail


def test_an_honest_kernel_passes_and_the_figures_are_told():
    worker = Clocks()
    assert checked(worker) == (
        Finding.PASSED,
        "on 3 scenarios at work for 0.900 of the time outside at most (b2 h2/1 s64 d64 causal bf16: 1000 cycles on one "
        "SM at 1900 MHz right after, 0.9000 ms by the timer inside, 1.0000 ms outside)",
    )
    plain, stamped = worker.examined
    fastest = [SHAPES[number].name for number in (3, 2, 1)]
    assert [each.scenario.name for each in plain.plan.edges] == fastest
    assert [each.scenario.name for each in stamped.plan.scenarios] == fastest
    assert len(fastest) == SCENARIOS
    assert len(worker.texts) == len({each.build for each in stamped.plan.scenarios}) == 2
    assert all("%clock64" in text for text in worker.texts)
    assert not any(path.exists() for path in stamped.binaries.values())


def test_work_that_the_clock_outside_does_not_see_fails():
    finding, detail = checked(Clocks(inside_ms=1.3))
    assert finding is Finding.FAILED
    assert detail.startswith("the kernel is at work for longer than the events see, on b2 h2/1 s64 d64 causal bf16: ")
    assert detail.endswith("1.3000 ms by the timer inside, 1.0000 ms outside")


def test_a_kernel_that_stamps_change_is_skipped_with_the_figures():
    finding, detail = checked(Clocks(inside_ms=1.3, plain_ms=0.5))
    assert finding is Finding.SKIPPED
    assert detail.startswith("the kernel cannot be clocked from inside: with stamps it is another kernel: ")
    assert "b2 h2/1 s64 d64 causal bf16 takes 1.0000 ms with them and 0.5000 without" in detail


@pytest.mark.parametrize(
    ("worker", "compiler", "words"),
    [
        (Clocks(fault="loading it failed: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), None, "UNSUPPORTED_PTX_VERSION"),
        (Clocks(fault="wrong output on a: o"), None, "wrong output on a: o"),
        (Clocks(fault=EnvironmentFault("the worker broke:\nTraceback\nKeyError: 'x'")), None, "KeyError: 'x'"),
        (None, FakeCompiler(), "gives no PTX"),
        (None, GivesPtx("other"), "no body of attention is found in the PTX"),
        (None, GivesPtx(fault=CandidateFault(Status.COMPILE_ERROR, "took longer than 60 s")), "longer than 60 s"),
        (None, GivesPtx("evo_stamps"), "uses evo_stamps"),
    ],
)
def test_whatever_goes_wrong_with_stamps_is_skipped_with_the_reason(worker, compiler, words):
    finding, detail = checked(worker, compiler)
    assert finding is Finding.SKIPPED
    assert detail.startswith("the kernel cannot be clocked from inside: ")
    assert words in detail
    assert "\n" not in detail


def test_what_goes_wrong_without_stamps_too_is_the_machines_fault():
    """A GPU that falls off in between must not make a check that is left out, for good."""
    lost = EnvironmentFault("the device cannot be opened again")
    with pytest.raises(EnvironmentFault, match="cannot be opened again"):
        checked(Clocks(fault=lost, plain_fault=lost))


def test_a_fault_of_the_kernel_as_it_is_fails():
    assert checked(Clocks(plain_fault="an illegal address")) == (Finding.FAILED, "an illegal address")


def test_scenarios_of_less_than_a_twentieth_of_a_millisecond_are_not_clocked():
    worker = Clocks()
    assert checked(worker, milliseconds=0.05) == (Finding.SKIPPED, "every scenario takes less than 0.05 ms")
    assert worker.examined == []
