"""Memory that runs out in our own work is nobody's fault but the machine's, unless a candidate took it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fitness.evaluation import Status
from fitness.examination import Examination, Examined
from fitness.faults import EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.measure import Job, Measured
from fitness.memory_faults import large_workspaces, out_of_memory
from fitness.plan import SuitePlan, WorkspacePlan
from fitness.process_limits import ProcessLimits
from fitness.scenario import Suite
from tests.fitness.fake_device import plan, scenario

SUITE = Suite(name="one", scenarios=(scenario(),))


def request(kind=Job, *sizes):
    workspaces = tuple(WorkspacePlan(size=size, zeroed=False) for size in sizes)
    suite = SuitePlan(scenarios=(replace(plan(scenario()), workspaces=(*workspaces, None)),), edges=())
    return kind(plan=suite, binaries={suite.builds[0]: Path("x")}, settings=JudgeSettings(), rng_seed=1)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"),
    ],
)
@pytest.mark.parametrize("asked", [request(), request(Job, 1 << 30), SUITE])
def test_it_is_the_environments_fault_in_one_line(error, asked):
    fault = out_of_memory(error, asked, 8 << 30)
    assert isinstance(fault, EnvironmentFault)
    assert str(fault).startswith("no memory for the tensors, the reference or the baseline (")
    assert "\n" not in str(fault)


def test_a_candidate_that_took_it_all_is_to_blame():
    found = out_of_memory(MemoryError(), request(Job, 5 << 30, 6 << 30), 8 << 30)
    assert isinstance(found, Measured)
    assert found.status is Status.RUNTIME_ERROR
    assert found.reason == "its workspaces of 11 GiB leave no memory for checking it"
    assert not found.left_intact
    examined = out_of_memory(MemoryError(), request(Examination, 9 << 30), 8 << 30)
    assert isinstance(examined, Examined)
    assert examined.fault


def test_less_is_enough_to_be_blamed_where_a_process_may_take_less():
    asked = request(Job, 5 << 27)
    assert isinstance(out_of_memory(MemoryError(), asked, 5 << 27), EnvironmentFault)
    found = out_of_memory(MemoryError(), asked, 1 << 29)
    assert isinstance(found, Measured)
    assert found.reason == "its workspaces of 0.625 GiB leave no memory for checking it"


def test_the_stacks_of_its_threads_count_with_its_workspaces():
    asked = replace(request(Job, 1 << 30), stack_bytes=28_000)  # 7.05 GiB for the threads of a device
    assert isinstance(out_of_memory(MemoryError(), asked, 8 << 30), Measured)
    assert isinstance(out_of_memory(MemoryError(), replace(asked, stack_bytes=27_000), 8 << 30), EnvironmentFault)


@pytest.mark.parametrize(
    ("limit", "physical", "large"),
    [
        (None, 1 << 30, 8 << 30),  # on a GPU, whose memory is its own
        (8 << 30, 64 << 30, 4 << 30),
        (8 << 30, 2 << 30, 1 << 30),
        (64 << 30, 64 << 30, 8 << 30),
    ],
)
def test_what_is_much_is_half_of_what_there_is(limit, physical, large):
    assert large_workspaces(ProcessLimits(memory_bytes=limit), physical) == large


def test_other_errors_are_not_about_memory():
    assert out_of_memory(ZeroDivisionError("a fault in the harness"), request(), 8 << 30) is None
