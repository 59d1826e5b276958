"""Which devices a run measures on."""

from dataclasses import replace

import pytest

from evo.choices import settle
from evo.config import BackendConfig, BackendKind, Config
from evo.pool_config import PoolConfig
from evo.pools import like, on_one_device, pool_gpus, worker_settings
from evo.settings import ConfigError, compose_config
from evo.suites import load_suite
from fitness.faults import EnvironmentFault
from fitness.probe import Gpu, Machine
from fitness.roof import Roof
from fitness.scenario import Suite
from fitness.worker import BackendKind as WorkerBackend
from fitness.worker import BaselineFacts

H200 = Gpu(index=0, name="NVIDIA H200", capability=(9, 0), sm_count=132, memory_gib=139.8)
A100 = Gpu(index=2, name="NVIDIA A100-SXM4-80GB", capability=(8, 0), sm_count=108, memory_gib=79.3)
THREE = Machine(
    processor="test device", gpus=(H200, replace(H200, index=1), A100), driver="", gxx="", nvrtc="", packages={}
)
TWO = replace(THREE, gpus=THREE.gpus[:2])


def indices(machine: Machine, device: int | None = None, devices: list[int] | None = None) -> list[int]:
    config = Config(backend=BackendConfig(kind=BackendKind.cuda, device=device), pool=PoolConfig(devices=devices))
    settled = settle(config, machine)
    gpus = pool_gpus(config, settled, machine)
    assert gpus[0] == settled.gpu
    assert {each.backend for each in worker_settings(config, settled, gpus)} == {WorkerBackend.CUDA}
    return [each.device_index for each in worker_settings(config, settled, gpus)]


def test_every_visible_gpu_has_a_worker() -> None:
    assert indices(TWO) == [0, 1]


def test_those_that_are_named_have_one() -> None:
    assert indices(THREE, devices=[1, 0]) == [1, 0]
    assert indices(THREE, device=2) == [2]


def test_gpus_of_two_models_are_refused() -> None:
    with pytest.raises(EnvironmentFault) as fault:
        indices(THREE)
    assert str(fault.value) == (
        "the GPUs of the pool are of different models (0: NVIDIA H200, 1: NVIDIA H200, 2: NVIDIA A100-SXM4-80GB), "
        "whose figures are no comparison; name those of one model, as in pool.devices=[0], or a single one with "
        "backend.device=0"
    )


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(EnvironmentFault, match=r"pool\.devices=4: 3 GPU\(s\) are visible, counted from 0"):
        indices(THREE, devices=[0, 4])


def test_the_host_has_one_worker() -> None:
    config = Config(backend=BackendConfig(kind=BackendKind.host))
    settled = settle(config, THREE)
    [worker] = worker_settings(config, settled, pool_gpus(config, settled, THREE))
    assert worker.backend is WorkerBackend.HOST


@pytest.mark.parametrize(("devices", "index"), [(None, 0), ([2, 1], 2)])
def test_one_kernel_is_measured_on_one_device_whatever_else_is_there(devices: list[int] | None, index: int) -> None:
    config = on_one_device(Config(backend=BackendConfig(kind=BackendKind.cuda), pool=PoolConfig(devices=devices)))
    assert pool_gpus(config, settle(config, THREE), THREE) == (THREE.gpus[index],)


def test_one_kernel_may_be_measured_on_whichever_gpu_is_free() -> None:
    config = Config(backend=BackendConfig(kind=BackendKind.cuda, claim=True))
    assert on_one_device(config) == config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["backend.device=0", "pool.devices=[0]"], "backend.device and pool.devices: both say which GPUs"),
        (["backend.claim=true", "pool.devices=[0]"], "backend.claim and pool.devices: both"),
        (["backend.claim=true", "backend.device=0"], "backend.claim and backend.device: both"),
        (["pool=ray", "backend.claim=true"], "backend.claim and pool=ray: both"),
        (["pool=ray", "pool.devices=[0]"], "pool.devices and pool=ray: both"),
        (["pool.devices=[]"], "expected one index or more"),
        (["pool.devices=[0,0]"], "each once"),
        (["pool.devices=[-1]"], "from 0 on"),
        (["pool=slurm"], "there is local, ray"),
    ],
)
def test_bad_words_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose_config(words)
    assert message in str(error.value)


class Facts:
    """A worker with a baseline."""

    def __init__(self, version: str) -> None:
        self._version = version

    def baseline(self, suite: Suite) -> BaselineFacts:
        return BaselineFacts(name="fa3", version=self._version, roof=ROOF)


ROOF = Roof(tflops=1.0, gb_per_s=1.0)


def test_a_worker_with_another_baseline_is_not_ready() -> None:
    suite = load_suite("smoke")
    ready = like(Facts("3.0").baseline(suite), suite)
    ready(Facts("3.0"))  # type: ignore[arg-type]  # a stand-in
    with pytest.raises(EnvironmentFault, match=r"fa3 3\.1, and the first worker's fa3 3\.0"):
        ready(Facts("3.1"))  # type: ignore[arg-type]
