"""Whose fault an error of the device is: some no kernel can bring about, whoever was running."""

from collections.abc import Iterator
from contextlib import contextmanager

from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.out_of_memory import ran_out_of_memory

# Numbers as in the CUDA driver API's CUresult; the runtime's cudaError_t has the same for each of these. What is not
# here may be a kernel's doing and is held against it once a fresh process has opened the device. That goes for 719
# (LAUNCH_FAILED) and 999 (UNKNOWN) too, which both a stray pointer and a GPU that falls off the bus can give: then no
# process opens the device again. OUT_OF_MEMORY is told by what the candidate asked for (fitness/memory_faults.py).
_ENVIRONMENTS = {
    3: "NOT_INITIALIZED",  # the driver did not start
    4: "DEINITIALIZED",  # the driver is going
    34: "STUB_LIBRARY",  # an installation without a driver
    35: "INSUFFICIENT_DRIVER",  # of the runtime alone
    36: "CALL_REQUIRES_NEWER_DRIVER",
    46: "DEVICE_UNAVAILABLE",  # taken by another process, or prohibited
    100: "NO_DEVICE",
    101: "INVALID_DEVICE",  # of that index, which is ours
    102: "DEVICE_NOT_LICENSED",
    209: "NO_BINARY_FOR_GPU",  # the architecture that is compiled for is ours to choose
    214: "ECC_UNCORRECTABLE",
    220: "NVLINK_UNCORRECTABLE",
    226: "CONTAINED",  # a fault of the hardware, or of access to another GPU's memory, which no candidate is given
    301: "FILE_NOT_FOUND",  # the build, which somebody removed
    302: "SHARED_OBJECT_SYMBOL_NOT_FOUND",
    303: "SHARED_OBJECT_INIT_FAILED",
    304: "OPERATING_SYSTEM",
    802: "SYSTEM_NOT_READY",
    803: "SYSTEM_DRIVER_MISMATCH",
    804: "COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805: "MPS_CONNECTION_FAILED",
    806: "MPS_RPC_FAILURE",
    807: "MPS_SERVER_NOT_READY",
    808: "MPS_MAX_CLIENTS_REACHED",
    809: "MPS_MAX_CONNECTIONS_REACHED",
    # Not 810, MPS_CLIENT_TERMINATED: the server ends a client for its own stray access too.
    911: "EXTERNAL_DEVICE",
    919: "FABRIC_NOT_READY",
}


@contextmanager
def candidates_fault(activity: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Raises CandidateFault(RUNTIME_ERROR) in place of one of the `errors` within it, the device's.

    Those that no kernel can bring about, and a lack of memory, stay as they are: the worker's edge knows their cause.
    """
    try:
        yield
    except errors as error:
        if ran_out_of_memory(error) or environments_error(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CandidateFault(Status.RUNTIME_ERROR, f"{activity} failed: {reason}") from error


def environments_error(error: Exception) -> EnvironmentFault | None:
    """The fault of the machine that an error of CuPy or torch tells of; None for one that a kernel may cause."""
    name = _ENVIRONMENTS.get(_code(error))
    if name is None:
        return None
    said = next(iter(str(error).splitlines()), "")
    return EnvironmentFault(
        f"the device failed with {name}, which no kernel can bring about ({said}): look at nvidia-smi and dmesg"
    )


def _code(error: Exception) -> int:
    """Of CuPy's errors, and of torch's from the device; 0, success, for any other."""
    code = getattr(error, "status", getattr(error, "error_code", 0))
    return code if isinstance(code, int) else 0
