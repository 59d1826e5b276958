"""Who is blamed for what happens in the worker's process, and that the next candidate finds a whole one."""

import functools
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.baselines.fastest import FastestSetting
from fitness.evaluation import Status
from fitness.examination import Examination
from fitness.faults import BaselineUnavailableError, DoubtfulFault, EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.measure import Job
from fitness.plan import WorkspacePlan
from fitness.process_limits import ProcessLimits
from fitness.scenario import Suite
from fitness.worker import PRELOAD, DeviceSide, Worker
from tests.fitness.fake_device import KERNELS, FakeBackend, FakeBaseline, binaries, right, scenario, suite_plan

SHAPE = scenario()
PLAN = suite_plan([SHAPE], [scenario(seqlen_q=3, seqlen_k=3)])
SUITE = Suite(name="one", scenarios=(SHAPE,))


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> None:
    start_fork_server(PRELOAD)


def open_fake_side(baseline: str = "right", trouble: str = "", gone: Path | None = None) -> DeviceSide:
    """The fake device, in the worker's process; there is none while the file `gone` is there."""
    if trouble == "!":
        raise ZeroDivisionError("nobody foresaw it")
    if trouble or (gone is not None and gone.exists()):
        raise EnvironmentFault(trouble or "no GPU here")
    own = (
        breaks_later, crashes_at_length, raises, is_killed, leaves_a_trace, sees_a_trace, meets_an_ecc_error,
        finds_no_memory,
    )  # fmt: skip
    kernels = {**KERNELS, **{each.__name__: each for each in own}}
    backend = Breakable(kernels)
    return DeviceSide(backend=backend, baseline=FastestSetting(BASELINES[baseline](), backend))


class Breakable(FakeBackend):
    """A device that crashes when it prepares the baseline, once a candidate has spoilt it."""

    spoilt = False
    traces = False

    def capture(self, call):
        if Breakable.spoilt:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().capture(call)


def breaks_later(tensors, shape):
    right(tensors, shape)
    Breakable.spoilt = True


def crashes_at_length(tensors, shape):
    right(tensors, shape)
    if shape.seqlen_k == SHAPE.seqlen_k:
        os._exit(3)


def is_killed(tensors, shape):
    os.kill(os.getpid(), signal.SIGKILL)  # as a person or the system would; no kernel can


def leaves_a_trace(tensors, shape):
    right(tensors, shape)
    Breakable.traces = True


def sees_a_trace(tensors, shape):
    """Right where it is alone in its process."""
    if not Breakable.traces:
        right(tensors, shape)


class DeviceError(RuntimeError):
    """As CuPy raises it."""

    status = 214


def meets_an_ecc_error(tensors, shape):
    raise DeviceError("cudaErrorECCUncorrectable: uncorrectable ECC error encountered")


def finds_no_memory(tensors, shape):
    raise MemoryError("4096 bytes for workspace 0 are not to be had: [Errno 12] Cannot allocate memory")


def raises(tensors, shape):
    raise ZeroDivisionError("a fault in the harness")


def crash(tensors, shape):
    os.kill(os.getpid(), signal.SIGABRT)


def lacks_memory(tensors, shape):
    raise MemoryError("64 GiB")


BASELINES = {
    "right": FakeBaseline,
    "refuses": functools.partial(FakeBaseline, refuses="no causal mask"),
    "crashes": functools.partial(FakeBaseline, attend=crash),
    "is too large": functools.partial(FakeBaseline, attend=lacks_memory),
}


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(open_fake_side, limits=ProcessLimits(), shares_memory=False) as worker:
        yield worker


def opened(shares_memory=False, **side):
    return Worker(functools.partial(open_fake_side, **side), limits=ProcessLimits(), shares_memory=shares_memory)


def job(kernel, **settings):
    settings = JudgeSettings(
        **{"distributions": (Distribution.NORMAL,), "repeats": 3, "least_repeats": 1, "bootstrap_draws": 50, **settings}
    )
    return Job(plan=PLAN, binaries=binaries(PLAN, kernel), settings=settings, rng_seed=1)


def test_a_right_candidate_passes(worker):
    found = worker.measure(job("right"))
    assert found.status is Status.PASSED
    assert [timing.scenario for timing in found.timings] == [SHAPE.name]
    assert len(found.checks) == 3


def test_an_endless_loop_is_the_candidates_timeout(worker):
    found = worker.measure(job("loops", call_timeout_s=0.3))
    assert found.status is Status.TIMEOUT
    assert found.reason == (
        "running the candidate on b1 h2/1 s3 d32 causal bf16, normal inputs took longer than 0.3 s"
    )


def test_a_crash_while_the_candidate_runs_is_its_runtime_error(worker):
    found = worker.measure(job("crashes"))
    assert found.status is Status.RUNTIME_ERROR
    assert "SIGSEGV while running the candidate on b1 h2/1 s3 d32 causal bf16" in found.reason


def test_the_checks_before_a_crash_are_kept(worker):
    found = worker.measure(job("crashes_at_length"))
    assert found.status is Status.RUNTIME_ERROR
    assert f"exit code 3 while running the candidate on {SHAPE.name}" in found.reason
    assert [check.passed for check in found.checks] == [True]


def test_every_candidate_after_a_bad_one_is_judged_rightly(worker):
    order = ["right", "crashes", "right", "zeros", "faults", "writes_outside", "right"]
    found = [str(worker.measure(job(kernel)).status) for kernel in order]
    assert found == ["PASSED", "RUNTIME_ERROR", "PASSED", "INCORRECT", "RUNTIME_ERROR", "INCORRECT", "PASSED"]


def test_where_memory_is_shared_a_later_crash_of_the_harness_is_the_candidates():
    with opened(shares_memory=True) as worker:
        found = worker.measure(job("breaks_later"))
        assert found.status is Status.RUNTIME_ERROR
        assert "the candidate had run in it" in found.reason
        assert worker.measure(job("right")).status is Status.PASSED


def test_where_it_is_not_that_crash_is_the_environments(worker):
    with pytest.raises(DoubtfulFault, match="SIGSEGV"):
        worker.measure(job("breaks_later"))


def test_where_memory_is_shared_no_candidate_meets_what_another_left():
    with opened(shares_memory=True) as worker:
        found = [worker.measure(job(kernel, repeats=1)).status for kernel in ("leaves_a_trace", "sees_a_trace")]
    assert found == [Status.PASSED, Status.PASSED]


def test_where_it_is_not_the_same_process_goes_on_after_a_candidate_that_only_gave_outputs(worker):
    pids = []
    for kernel in ("right", "right", "zeros", "right"):
        worker.measure(job(kernel))
        pids.append(worker.pid)
    assert pids[0] is not None
    assert set(pids) == {pids[0]}


@pytest.mark.parametrize("kernel", ["faults", "writes_outside", "writes_its_inputs", "crashes", "loops"])
def test_after_a_bad_one_the_next_is_measured_in_a_fresh_process(worker, kernel):
    worker.measure(job("leaves_a_trace"))
    before = worker.pid
    assert worker.measure(job(kernel, call_timeout_s=0.3)).status is not Status.PASSED
    assert worker.measure(job("sees_a_trace")).status is Status.PASSED
    assert worker.pid not in (before, None)


@pytest.mark.parametrize("kernel", ["faults", "crashes", "loops"])
def test_a_verdict_is_kept_only_once_a_fresh_process_has_opened_the_device(tmp_path, kernel):
    gone = tmp_path / "gone"
    with opened(gone=gone) as worker:
        assert worker.measure(job("right")).status is Status.PASSED
        gone.touch()  # the GPU falls off while the candidate runs
        with pytest.raises(EnvironmentFault, match=r"cannot be opened again \(no GPU here\), so this is not") as fault:
            worker.measure(job(kernel, call_timeout_s=0.3))
        assert not isinstance(fault.value, DoubtfulFault)
        with pytest.raises(EnvironmentFault, match="no GPU here"):
            worker.measure(job("right"))
        gone.unlink()
        assert worker.measure(job("right")).status is Status.PASSED


def test_so_it_is_with_the_verdict_of_an_examination(tmp_path):
    gone = tmp_path / "gone"
    with opened(gone=gone) as worker:
        worker.examine(examination("right"))
        gone.touch()
        with pytest.raises(EnvironmentFault, match="so this is not held against the candidate: an illegal address"):
            worker.examine(examination("faults"))


def test_an_error_of_the_device_that_no_kernel_can_cause_is_the_environments_in_one_line(worker):
    with pytest.raises(EnvironmentFault) as fault:
        worker.measure(job("meets_an_ecc_error"))
    assert str(fault.value) == (
        "the device failed with ECC_UNCORRECTABLE, which no kernel can bring about (cudaErrorECCUncorrectable: "
        "uncorrectable ECC error encountered): look at nvidia-smi and dmesg"
    )
    assert not isinstance(fault.value, DoubtfulFault)
    assert worker.measure(job("right")).status is Status.PASSED


def test_no_memory_for_small_workspaces_is_the_environments_fault(worker):
    with pytest.raises(EnvironmentFault, match="4096 bytes for workspace 0 are not to be had") as fault:
        worker.measure(job("finds_no_memory"))
    assert not isinstance(fault.value, DoubtfulFault)


def test_nor_is_it_where_the_stacks_of_its_threads_take_the_memory(worker):
    found = worker.measure(replace(job("finds_no_memory"), stack_bytes=400_000))
    assert found.status is Status.RUNTIME_ERROR
    assert found.reason == (
        "its workspaces of 101 GiB leave no memory for checking it (with 400000 bytes of stack for each of 270336 "
        "threads)"
    )


def test_a_worker_that_breaks_before_a_candidate_has_run_says_nothing_of_candidates():
    with opened(baseline="crashes") as worker, pytest.raises(EnvironmentFault) as fault:
        worker.measure(job("right"))
    assert isinstance(fault.value, DoubtfulFault)  # the baseline is made ready once the candidate has been checked
    with opened(trouble="!") as worker, pytest.raises(EnvironmentFault, match="ZeroDivisionError") as fault:
        worker.measure(job("right"))
    assert not isinstance(fault.value, DoubtfulFault)


@pytest.mark.parametrize("shares_memory", [False, True])
def test_who_kills_the_process_while_a_candidate_runs_is_not_the_candidate(shares_memory):
    with opened(shares_memory=shares_memory) as worker:
        with pytest.raises(EnvironmentFault, match="SIGKILL, which comes from outside"):
            worker.measure(job("is_killed"))
        assert worker.measure(job("right")).status is Status.PASSED


def test_unless_its_workspaces_leave_no_memory_for_others(worker):
    asked = job("is_killed")
    large = tuple(replace(each, workspaces=(WorkspacePlan(size=9 << 30, zeroed=False),)) for each in PLAN.scenarios)
    found = worker.measure(replace(asked, plan=replace(PLAN, scenarios=large)))
    assert found.status is Status.RUNTIME_ERROR
    assert "SIGKILL while running the candidate" in found.reason


def test_what_is_much_follows_from_what_the_process_may_take():
    asked = job("is_killed")
    large = tuple(replace(each, workspaces=(WorkspacePlan(size=3 << 28, zeroed=False),)) for each in PLAN.scenarios)
    asked = replace(asked, plan=replace(PLAN, scenarios=large))
    with Worker(open_fake_side, limits=ProcessLimits(memory_bytes=1 << 30), shares_memory=True) as bounded:
        assert bounded.measure(asked).status is Status.RUNTIME_ERROR
    with opened(shares_memory=True) as boundless, pytest.raises(EnvironmentFault, match="which comes from outside"):
        boundless.measure(asked)


def test_an_exception_in_the_harness_is_the_environments_fault_with_its_traceback(worker):
    with pytest.raises(EnvironmentFault, match="ZeroDivisionError: a fault in the harness"):
        worker.measure(job("raises"))
    assert worker.measure(job("right")).status is Status.PASSED


def test_a_baseline_that_crashes_is_the_environments_fault():
    with opened(baseline="crashes") as worker, pytest.raises(EnvironmentFault, match="preparing the baseline"):
        worker.measure(job("right"))


@pytest.mark.parametrize("shares_memory", [False, True])
def test_no_memory_for_the_baseline_or_the_reference_is_the_environments_fault_in_one_line(shares_memory):
    with (
        opened(baseline="is too large", shares_memory=shares_memory) as worker,
        pytest.raises(EnvironmentFault) as caught,
    ):
        worker.measure(job("right"))
    assert str(caught.value) == (
        "no memory for the tensors, the reference or the baseline (64 GiB): free the device of other processes, or "
        "choose a suite of smaller scenarios"
    )


def examination(kernel, **settings):
    return Examination(
        plan=suite_plan([SHAPE]), binaries=binaries(PLAN, kernel), settings=JudgeSettings(**settings), rng_seed=1
    )


def test_an_examination_is_answered(worker):
    found = worker.examine(examination("right"))
    assert [bulk.scenario for bulk in found.bulk] == [SHAPE.name]
    assert found.fault == ""


def test_a_death_in_an_examination_is_the_candidates_and_the_next_finds_a_whole_process(worker):
    died = worker.examine(examination("crashes"))
    assert f"SIGSEGV while warming up the candidate on {SHAPE.name}" in died.fault
    late = worker.examine(examination("loops", call_timeout_s=0.3))
    assert late.fault == f"warming up the candidate on {SHAPE.name} took longer than 0.3 s"
    assert worker.examine(examination("right")).fault == ""


def test_a_fault_in_an_examination_replaces_the_process(worker):
    worker.examine(examination("right"))
    before = worker.pid
    assert worker.examine(examination("faults")).fault == "an illegal address"
    worker.examine(examination("right"))
    assert worker.pid != before


def test_a_device_that_cannot_be_opened_is_the_environments_fault():
    with opened(trouble="no GPU here") as worker, pytest.raises(EnvironmentFault, match="no GPU here"):
        worker.measure(job("right"))


def test_the_worker_tells_its_baseline_and_its_devices_roof(worker):
    facts = worker.baseline(SUITE)
    assert (facts.name, facts.version) == ("fake", "fake 1")
    assert facts.roof.tflops > 0
    assert facts.roof.gb_per_s > 0


def test_a_baseline_that_cannot_do_the_suite_is_refused_with_the_scenarios_named():
    with opened(baseline="refuses") as worker, pytest.raises(BaselineUnavailableError) as caught:
        worker.baseline(SUITE)
    assert f"cannot compute 1 of the 1 scenarios of one: {SHAPE.name} (no causal mask)" in str(caught.value)
