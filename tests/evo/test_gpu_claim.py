"""A run has the GPU that it claims alone, for as long as its process lives; others hear of whom they disturb."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evo.config import BackendKind, Config
from evo.gpu_claim import GpuLocks, beside_others, on_held_gpus
from evo.pool_config import PoolKind
from fitness.faults import EnvironmentFault
from fitness.probe import Gpu, Machine

BLUE = Gpu(index=0, name="NVIDIA H200", capability=(9, 0), sm_count=132, memory_gib=139.8, uuid="blue")
RED, GREEN = replace(BLUE, index=1, uuid="red"), replace(BLUE, index=2, uuid="green")


def machine_with(*gpus: Gpu) -> Machine:
    return Machine(processor="test device", gpus=gpus, driver="", gxx="", nvrtc="", packages={})


def seen_from(*gpus: Gpu) -> Machine:
    """The machine as a process sees it whose CUDA_VISIBLE_DEVICES name these GPUs in this order."""
    return machine_with(*(replace(gpu, index=index) for index, gpu in enumerate(gpus)))


def of_backend(**fields: Any) -> Config:
    return replace(Config(), backend=replace(Config().backend, **fields))


def of_pool(**fields: Any) -> Config:
    return replace(Config(), pool=replace(Config().pool, **fields))


CLAIMS = of_backend(claim=True)


class Runs:
    """Runs that go on until the test ends, and what each was told."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def begin(self, config: Config, machine: Machine) -> tuple[Config, list[str]]:
        said: list[str] = []
        placed = self._stack.enter_context(on_held_gpus(config, machine, said.append, GpuLocks(folder=self._folder)))
        return placed, said

    def end_all(self) -> None:
        self._stack.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with ExitStack() as stack:
        yield Runs(tmp_path / "locks", stack)


def test_each_claim_gets_another_gpu_until_none_is_left(runs: Runs) -> None:
    machine = machine_with(BLUE, RED)
    assert [runs.begin(CLAIMS, machine)[0].backend.device for _ in range(2)] == [0, 1]
    with pytest.raises(EnvironmentFault, match="other runs hold all 2 visible GPUs"):
        runs.begin(CLAIMS, machine)
    runs.end_all()
    assert runs.begin(CLAIMS, machine) == (of_backend(claim=True, device=0), [])


@pytest.mark.parametrize(
    ("first", "second", "device"),
    [
        ((BLUE, RED), (RED, BLUE), 0),  # CUDA_VISIBLE_DEVICES=0,1 and 1,0
        ((RED,), (BLUE, RED, GREEN), 0),
        ((RED,), (RED, GREEN), 1),
        ((BLUE,), (BLUE, RED), 1),
    ],
)
def test_gpus_are_told_apart_by_what_they_are_and_not_by_their_place(
    runs: Runs, first: tuple[Gpu, ...], second: tuple[Gpu, ...], device: int
) -> None:
    assert runs.begin(CLAIMS, seen_from(*first))[0].backend.device == 0
    assert runs.begin(CLAIMS, seen_from(*second))[0].backend.device == device


def test_the_same_gpu_under_two_indices_is_claimed_once(runs: Runs) -> None:
    runs.begin(CLAIMS, machine_with(RED))
    with pytest.raises(EnvironmentFault, match="other runs hold all 1 visible GPUs"):
        runs.begin(CLAIMS, seen_from(RED))


def test_who_shares_a_gpu_is_told_and_goes_on(runs: Runs) -> None:
    machine = machine_with(BLUE, RED, GREEN)
    assert runs.begin(of_backend(device=1), machine)[1] == []
    assert runs.begin(of_pool(devices=[0, 1]), machine) == (
        of_pool(devices=[0, 1]),
        [
            "note: GPU 1: another run measures there too, and each disturbs the other's times; give every run a GPU "
            "of its own, as by backend.claim=true, backend.device=N or pool.devices=[N]"
        ],
    )
    [line] = runs.begin(Config(), machine)[1]
    assert line.startswith("note: GPU 0, 1: another run measures there too")


def test_a_claim_leaves_out_what_others_measure_on_without_one(runs: Runs) -> None:
    machine = machine_with(BLUE, RED, GREEN)
    runs.begin(of_pool(devices=[0, 1]), machine)
    assert runs.begin(CLAIMS, machine)[0].backend.device == 2
    runs.end_all()
    runs.begin(Config(), machine)
    with pytest.raises(EnvironmentFault, match="other runs hold all 3 visible GPUs"):
        runs.begin(CLAIMS, machine)


def test_a_gpu_that_two_runs_share_is_free_only_when_both_have_ended(runs: Runs, tmp_path: Path) -> None:
    machine, locks = machine_with(BLUE), GpuLocks(folder=tmp_path / "locks")
    with on_held_gpus(Config(), machine, lambda _: None, locks):
        runs.begin(Config(), machine)
    with pytest.raises(EnvironmentFault), on_held_gpus(CLAIMS, machine, lambda _: None, locks):
        pass
    runs.end_all()
    assert runs.begin(CLAIMS, machine)[0].backend.device == 0


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    locks = GpuLocks(folder=tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        held = locks.claim([BLUE])
        os.write(writing, b"held")
        signal.pause()
        del held
        os._exit(0)
    assert os.read(reading, 4) == b"held"
    with pytest.raises(EnvironmentFault):
        locks.claim([BLUE])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    gpu, file = locks.claim([BLUE])
    file.close()
    assert gpu == BLUE


def test_of_runs_that_begin_at_once_each_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    gpus = [replace(BLUE, index=index, uuid=str(index)) for index in range(6)]
    claimed, claim = os.pipe()
    ended, end = os.pipe()
    children = []
    for _ in gpus:
        children.append(os.fork())
        if children[-1] == 0:
            os.close(end)
            gpu, held = GpuLocks(folder=tmp_path).claim(gpus)
            os.write(claim, gpu.uuid.encode())
            os.read(ended, 1)  # until the parent closes its end
            held.close()
            os._exit(0)
    found = b"".join(os.read(claimed, 1) for _ in gpus)
    os.close(end)
    assert sorted(found) == sorted(b"012345")
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(gpus)


@pytest.mark.parametrize(
    "config",
    [of_backend(claim=True, kind=BackendKind.host), of_backend(kind=BackendKind.recorded), of_pool(kind=PoolKind.ray)],
)
def test_who_measures_elsewhere_holds_no_gpu(runs: Runs, config: Config, tmp_path: Path) -> None:
    assert runs.begin(config, machine_with(BLUE)) == (config, [])
    assert runs.begin(CLAIMS, machine_with()) == (CLAIMS, [])
    assert not (tmp_path / "locks").exists()


def test_without_a_place_for_locks_only_a_claim_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    locks, said = GpuLocks(folder=tmp_path / "file" / "locks"), list[str]()
    with on_held_gpus(Config(), machine_with(BLUE), said.append, locks) as placed:
        assert placed == Config()
    [line] = said
    assert line.startswith("note: whether other runs measure on the same GPUs cannot be told ([Errno")
    with (
        pytest.raises(EnvironmentFault, match="no lock can be had"),
        on_held_gpus(CLAIMS, machine_with(BLUE), said.append, locks),
    ):
        pass


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_jobs_beside_each_other_claim_a_gpu_each(launcher: str) -> None:
    assert beside_others(Config(), launcher) == CLAIMS


@pytest.mark.parametrize("launcher", ["basic", "submitit_slurm"])
def test_jobs_that_are_alone_have_all_that_they_see(launcher: str) -> None:
    assert beside_others(Config(), launcher) == Config()


@pytest.mark.parametrize(
    "config", [of_backend(claim=False), of_backend(device=1), of_pool(devices=[0]), of_pool(kind=PoolKind.ray)]
)
def test_a_job_that_says_where_it_measures_is_left_alone(config: Config) -> None:
    assert beside_others(config, "joblib") == config
