"""What is found out about the GPUs here."""

import pytest

pytestmark = pytest.mark.gpu


def test_a_gpu_goes_by_the_uuid_that_the_driver_gives_it(machine):
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    uuids = [f"GPU-{gpu.uuid}" for gpu in machine.gpus]
    assert set(uuids) <= set(map(pynvml.nvmlDeviceGetUUID, handles))
    assert len(set(uuids)) == len(uuids)
