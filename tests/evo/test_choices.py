"""What "auto" comes to, and why."""

from dataclasses import replace
from typing import Any

import pytest
from small_search import MACHINE, small_config

from evo.choices import Choice, settle
from evo.config import AnswererConfig, AnswererKind, BackendConfig, BackendKind, BaselineConfig, BaselineKind, Config
from evo.settings import ConfigError
from fitness.faults import BaselineUnavailableError, EnvironmentFault
from fitness.probe import Gpu, Machine

H200 = Gpu(index=0, name="NVIDIA H200", capability=(9, 0), sm_count=132, memory_gib=139.0)
A100 = Gpu(index=1, name="NVIDIA A100", capability=(8, 0), sm_count=108, memory_gib=80.0)
ON_HOST = MACHINE
ON_GPU = replace(MACHINE, gpus=(H200, A100), driver="580")


def config(kind: BackendKind = BackendKind.auto, **backend: Any) -> Config:
    return Config(seeds=["tiled"], backend=BackendConfig(kind=kind, **backend))


def chosen(config: Config, machine: Machine) -> dict[str, Choice]:
    return {choice.what: choice for choice in settle(config, machine).choices}


def test_without_a_gpu_everything_is_the_processors() -> None:
    settled, choices = settle(config(), ON_HOST), chosen(config(), ON_HOST)
    assert (settled.backend, settled.baseline.value, settled.suite.name) == (BackendKind.host, "sdpa", "smoke")
    assert (settled.gpu, settled.device) == (None, "test device")
    assert choices["backend"].value == "host (test device, 1 thread)"
    assert choices["backend"].why == "no GPU was found; every figure is the processor's"
    assert chosen(config(threads=2), ON_HOST)["backend"].value == "host (test device, 2 threads)"


def test_a_gpu_that_cannot_be_used_is_told_of() -> None:
    machine = replace(MACHINE, gpu_trouble="the driver is too old")
    assert chosen(config(), machine)["backend"].why == "the driver is too old; every figure is the processor's"
    with pytest.raises(EnvironmentFault, match="backend=cuda: the driver is too old"):
        settle(config(BackendKind.cuda), machine)


def test_with_a_gpu() -> None:
    settled, choices = settle(config(), ON_GPU), chosen(config(), ON_GPU)
    assert (settled.backend, settled.baseline.value, settled.suite.name) == (BackendKind.cuda, "fa3", "core26")
    assert (settled.gpu, settled.device) == (H200, "NVIDIA H200")
    assert choices["backend"].value == "cuda (NVIDIA H200, sm_90a, device 0)"
    assert choices["suite"].value == "core26 (26 scenarios)"


def test_another_of_the_gpus() -> None:
    settled = settle(config(device=1), ON_GPU)
    assert (settled.gpu, settled.baseline) == (A100, BaselineKind.sdpa)
    assert {each.what: each.why for each in settled.choices}["baseline"] == "the default on sm_80"


@pytest.mark.parametrize(("device", "machine"), [(2, ON_GPU), (7, ON_GPU), (1, replace(ON_GPU, gpus=(H200,)))])
def test_a_device_that_is_not_there(device: int, machine: Machine) -> None:
    with pytest.raises(EnvironmentFault) as fault:
        settle(config(device=device), machine)
    visible = len(machine.gpus)
    assert str(fault.value) == f"backend.device={device}: {visible} GPU(s) are visible, counted from 0"


def test_cuda_without_a_gpu() -> None:
    with pytest.raises(EnvironmentFault) as fault:
        settle(config(BackendKind.cuda), ON_HOST)
    assert str(fault.value) == "backend=cuda: no GPU was found; use backend=host, or ask `evo doctor`"


def test_the_host_beside_a_gpu() -> None:
    settled = settle(config(BackendKind.host), ON_GPU)
    assert (settled.backend, settled.gpu, settled.device) == (BackendKind.host, None, "test device")
    assert settled.choices[0].why == "as configured; every figure is the processor's"


def test_a_recorded_table_needs_no_device() -> None:
    settled = settle(small_config(), ON_GPU)
    assert (settled.backend, settled.gpu) == (BackendKind.recorded, None)
    assert settled.choices[0] == Choice(what="backend", value="recorded (a test's own judge)", why="as configured")


def test_a_baseline_that_was_named_is_not_replaced() -> None:
    named = replace(config(), baseline=BaselineConfig(kind=BaselineKind.fa3))
    assert settle(named, ON_GPU).baseline is BaselineKind.fa3  # whether it is there is found out when it is built
    table = replace(named, backend=BackendConfig(kind=BackendKind.recorded, table="table.jsonl"))
    assert settle(table, ON_HOST).baseline is BaselineKind.fa3


@pytest.mark.parametrize("kind", [BaselineKind.fa3, BaselineKind.fa4, BaselineKind.cudnn])
@pytest.mark.parametrize(
    ("machine", "backend", "why"),
    [
        (ON_HOST, BackendKind.auto, "no GPU was found; use baseline=sdpa, or ask `evo doctor`"),
        (replace(ON_HOST, gpu_trouble="the driver is old"), BackendKind.host, "the driver is old; use baseline=sdpa"),
        (ON_GPU, BackendKind.host, "backend=host on the processor; use baseline=sdpa, or backend=cuda"),
    ],
)
def test_a_baseline_that_runs_on_a_gpu_needs_one(
    kind: BaselineKind, machine: Machine, backend: BackendKind, why: str
) -> None:
    named = replace(config(backend), baseline=BaselineConfig(kind=kind))
    with pytest.raises(BaselineUnavailableError, match=f"^baseline={kind.value} runs on a GPU, and {why}"):
        settle(named, machine)


def test_the_offline_answerer_says_that_phrasing_has_no_effect() -> None:
    assert chosen(config(), ON_HOST)["style"].why.startswith("phrasing has no effect by construction")
    openai = replace(config(), answerer=AnswererConfig(kind=AnswererKind.openai, model="m-1"))
    assert chosen(openai, ON_HOST)["answerer"].value == "openai (m-1)"
    assert chosen(openai, ON_HOST)["style"].why == "as configured"


@pytest.mark.parametrize("machine", [ON_HOST, ON_GPU])
@pytest.mark.parametrize("kind", [BackendKind.auto, BackendKind.host, BackendKind.recorded])
def test_every_choice_has_a_reason(machine: Machine, kind: BackendKind) -> None:
    choices = settle(config(kind, table="t.jsonl"), machine).choices
    assert [choice.what for choice in choices] == ["backend", "baseline", "suite", "seed", "answerer", "style"]
    assert all(choice.value and choice.why for choice in choices)


def test_the_seed_follows_from_the_device_unless_it_is_named() -> None:
    unnamed = replace(config(), seeds=None)
    assert settle(unnamed, ON_HOST).seeds == ("tiled",)
    assert settle(unnamed, ON_GPU).seeds == ("mma",)
    assert settle(replace(unnamed, seeds=["naive", "tiled"]), ON_GPU).seeds == ("naive", "tiled")


def test_a_suite_that_cannot_be() -> None:
    empty = replace(config(), suite=replace(small_config().suite, scenarios=[]))
    with pytest.raises(ConfigError, match=r"suite tiny: .*no scenarios"):
        settle(empty, ON_HOST)
