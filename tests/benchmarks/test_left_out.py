"""What a fault leaves of a table of times."""

from pathlib import Path

import pytest
from fake_device import FakeBackend, binaries, faults, scenario, suite_plan, writes_nothing

from benchmarks.left_out import Found, build_all, measure
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.scenario import Suite

SHORT, LONG = scenario(seqlen_q=16, seqlen_k=16), scenario(seqlen_q=32, seqlen_k=32)
SUITE = Suite(name="two", scenarios=(SHORT, LONG))


def faults_when_long(tensors, shape):
    if shape == LONG:
        faults(tensors, shape)


def built(*names):
    plan = suite_plan(SUITE.scenarios)
    return {name: (plan, binaries(plan, name)) for name in names}


def test_each_kernel_has_its_median_on_every_scenario():
    found = Found()
    measure(FakeBackend({"whole": writes_nothing}, times_ms=(1.0, 2.0, 6.0)), built("whole"), SUITE, found)
    assert found == Found(milliseconds={SHORT.name: {"whole": 2.0}, LONG.name: {"whole": 2.0}})


def test_a_fault_keeps_what_was_measured_before_it_and_says_whose_it_is():
    backend = FakeBackend({"whole": writes_nothing, "broken": faults_when_long})
    found = Found()
    measure(backend, built("whole", "broken"), SUITE, found)
    assert found.milliseconds == {SHORT.name: {"whole": 1.0, "broken": 1.0}}
    assert found.faults == [f"on {LONG.name}, RUNTIME_ERROR: broken: an illegal address; nothing was measured after it"]


def test_what_ends_the_measuring_from_outside_keeps_it_too():
    def ctrl_c_when_long(_tensors, shape):
        if shape == LONG:
            raise KeyboardInterrupt

    found = Found()
    with pytest.raises(KeyboardInterrupt):
        measure(FakeBackend({"whole": ctrl_c_when_long}), built("whole"), SUITE, found)
    assert found.milliseconds == {SHORT.name: {"whole": 1.0}}


def test_a_kernel_that_does_not_compile_is_left_out_and_told():
    def build(path):
        if path.name == "broken.cu":
            raise CandidateFault(Status.COMPILE_ERROR, "line 3: expected a ;")
        return built("whole")["whole"]

    found = Found()
    kernels = build_all(build, [Path("whole.cu"), Path("broken.cu")], found)
    assert list(kernels) == ["whole.cu"]
    assert found.faults == ["broken.cu: COMPILE_ERROR: line 3: expected a ;; left out"]
