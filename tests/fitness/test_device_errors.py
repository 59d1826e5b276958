"""Which errors of a device are a candidate's, and which no kernel can bring about."""

import pytest
import torch

from fitness.device_errors import candidates_fault, environments_error
from fitness.evaluation import Status
from fitness.faults import CandidateFault


class OfCupy(RuntimeError):
    def __init__(self, status, said):
        super().__init__(said)
        self.status = status


class OfTorch(RuntimeError):
    def __init__(self, error_code, said):
        super().__init__(f"CUDA error: {said}\nCUDA kernel errors might be asynchronously reported at some other call")
        self.error_code = error_code


ERRORS = (OfCupy, OfTorch, torch.OutOfMemoryError)
KERNELS = {
    1: "INVALID_VALUE", 98: "INVALID_DEVICE_FUNCTION", 200: "INVALID_IMAGE", 218: "INVALID_PTX", 400: "INVALID_HANDLE",
    500: "NOT_FOUND", 700: "ILLEGAL_ADDRESS", 701: "LAUNCH_OUT_OF_RESOURCES", 702: "LAUNCH_TIMEOUT", 710: "ASSERT",
    714: "HARDWARE_STACK_ERROR", 715: "ILLEGAL_INSTRUCTION", 716: "MISALIGNED_ADDRESS", 717: "INVALID_ADDRESS_SPACE",
    718: "INVALID_PC", 719: "LAUNCH_FAILED", 720: "COOPERATIVE_LAUNCH_TOO_LARGE", 810: "MPS_CLIENT_TERMINATED",
    912: "INVALID_CLUSTER_SIZE", 999: "UNKNOWN",
}  # fmt: skip
MACHINES = {
    3: "NOT_INITIALIZED", 46: "DEVICE_UNAVAILABLE", 100: "NO_DEVICE", 101: "INVALID_DEVICE", 102: "DEVICE_NOT_LICENSED",
    214: "ECC_UNCORRECTABLE", 220: "NVLINK_UNCORRECTABLE", 226: "CONTAINED", 301: "FILE_NOT_FOUND",
    304: "OPERATING_SYSTEM", 802: "SYSTEM_NOT_READY", 803: "SYSTEM_DRIVER_MISMATCH", 805: "MPS_CONNECTION_FAILED",
    806: "MPS_RPC_FAILURE", 807: "MPS_SERVER_NOT_READY", 808: "MPS_MAX_CLIENTS_REACHED",
    809: "MPS_MAX_CONNECTIONS_REACHED",
}  # fmt: skip


@pytest.mark.parametrize("kind", [OfCupy, OfTorch])
@pytest.mark.parametrize("code", KERNELS, ids=KERNELS.get)
def test_what_a_kernel_may_cause_is_the_candidates_in_the_errors_first_line(kind, code):
    with pytest.raises(CandidateFault) as fault, candidates_fault("running it", ERRORS):
        raise kind(code, "it broke")
    assert fault.value.status is Status.RUNTIME_ERROR
    assert fault.value.reason == f"running it failed: {kind(code, 'it broke').args[0].splitlines()[0]}"


@pytest.mark.parametrize("kind", [OfCupy, OfTorch])
@pytest.mark.parametrize("code", MACHINES, ids=MACHINES.get)
def test_what_no_kernel_can_cause_is_told_by_its_name_whoever_was_running(kind, code):
    with pytest.raises(kind) as error, candidates_fault("running it", ERRORS):
        raise kind(code, "it broke")
    told = str(environments_error(error.value))
    assert told.startswith(f"the device failed with {MACHINES[code]}, which no kernel can bring about (")
    assert "\n" not in told


@pytest.mark.parametrize(
    "error",
    [
        OfCupy(2, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        OfTorch(2, "out of memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB"),
    ],
)
def test_a_lack_of_memory_is_left_to_whoever_knows_what_was_asked_for(error):
    with pytest.raises(type(error)) as raised, candidates_fault("launching it", ERRORS):
        raise error
    assert raised.value is error
    assert environments_error(error) is None


def test_the_driver_api_has_the_same_numbers():
    driver = pytest.importorskip("cuda.bindings.driver")
    for code, name in (KERNELS | MACHINES).items():
        if name != "INVALID_DEVICE_FUNCTION":  # of the runtime alone
            assert getattr(driver.CUresult, f"CUDA_ERROR_{name}") == code


def test_an_error_without_a_number_is_no_machines():
    assert environments_error(ZeroDivisionError("a fault in the harness")) is None
    strange = OfCupy("214", "a number that is a word")
    assert environments_error(strange) is None
