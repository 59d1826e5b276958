"""Each run that claims a GPU has one of its own, for as long as its process lives."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from small_search import MACHINE

from evo.config import BackendConfig, BackendKind, Config
from evo.gpu_claim import claim_gpu, on_claimed_gpu
from fitness.faults import EnvironmentFault


def test_each_claim_gets_another_gpu_until_none_is_left(tmp_path: Path) -> None:
    first, one = claim_gpu(2, visible=None, folder=tmp_path)
    second, other = claim_gpu(2, visible=None, folder=tmp_path)
    assert (first, second) == (0, 1)
    with pytest.raises(EnvironmentFault, match="other runs hold all 2 visible GPUs"):
        claim_gpu(2, visible=None, folder=tmp_path)
    one.close()
    again, held = claim_gpu(2, visible=None, folder=tmp_path)
    assert again == 0
    other.close()
    held.close()


def test_gpus_are_told_apart_by_what_they_are_called_and_not_by_their_place(tmp_path: Path) -> None:
    _, held = claim_gpu(1, visible="3", folder=tmp_path)
    with held:
        index, other = claim_gpu(2, visible="3,5", folder=tmp_path)
        other.close()
        assert index == 1
        index, other = claim_gpu(4, visible=None, folder=tmp_path)
        other.close()
        assert index == 0


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        held = claim_gpu(1, visible=None, folder=tmp_path)
        os.write(writing, b"held")
        signal.pause()
        del held
        os._exit(0)
    assert os.read(reading, 4) == b"held"
    with pytest.raises(EnvironmentFault):
        claim_gpu(1, visible=None, folder=tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    index, held = claim_gpu(1, visible=None, folder=tmp_path)
    held.close()
    assert index == 0


@pytest.mark.parametrize(
    "backend", [BackendConfig(), BackendConfig(claim=True), BackendConfig(claim=True, kind=BackendKind.host)]
)
def test_without_a_gpu_or_the_wish_nothing_is_claimed(backend: BackendConfig) -> None:
    config = replace(Config(), backend=backend)
    with on_claimed_gpu(config, MACHINE) as placed:
        assert placed == config
