"""What this machine has, found out in a child process, so that no CUDA context ever lives in the parent."""

import ctypes.util
import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from fitness.faults import EnvironmentFault
from fitness.process import Done, KillableProcess, ProcessFailure
from fitness.process_limits import ProcessLimits

_PROBE_S = 120.0  # importing torch on a cold disk
_PACKAGES = (
    "torch", "cupy-cuda13x", "cupy-cuda12x", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-ml-py", "tokenspeed-fa3",
    "fa3-fwd", "flash-attn-4",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One visible GPU; `index` counts after CUDA_VISIBLE_DEVICES."""

    index: int
    name: str
    capability: tuple[int, int]
    sm_count: int
    memory_gib: float
    uuid: str = ""  # the same whatever else is visible; "" where none is told

    @property
    def arch(self) -> str:
        """The target that NVRTC compiles for; from Hopper on with the "a" that wgmma and tcgen05 need."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @property
    def targets(self) -> frozenset[str]:
        """The manifest targets that run on it."""
        return frozenset({"portable", "sm_80", self.arch} if self.capability >= (8, 0) else {"portable"})


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Processor, GPUs, driver, compilers and packages, as far as they are there ("" or absent where not)."""

    processor: str
    gpus: tuple[Gpu, ...]
    driver: str
    gxx: str
    nvrtc: str  # as CuPy loads it
    packages: Mapping[str, str]  # distribution name to version
    gpu_trouble: str = ""  # why a GPU that seems to be there cannot be used


def probe_machine() -> Machine:
    """Look around. Raises EnvironmentFault where not even that succeeds."""
    with KillableProcess(_probe, limits=ProcessLimits()) as process:
        try:
            machine = process.request("probe", deadline_s=_PROBE_S)
        except ProcessFailure as failure:
            raise EnvironmentFault(
                f"looking for GPUs failed: {failure}; {failure.output or 'is torch installed rightly?'}"
            ) from failure
    if not isinstance(machine, Machine):
        raise TypeError(f"the probe sent {type(machine).__name__}; expected Machine")
    return machine


def _probe(connection: Connection) -> None:
    while True:
        connection.recv()
        connection.send(Done(look_around()))


def look_around() -> Machine:
    """The machine as this process sees it; initialises CUDA here where there is a GPU."""
    gpus, trouble = _gpus()
    return Machine(
        processor=processor_name(),
        gpus=gpus,
        driver=_driver() if gpus else "",
        gxx=_gxx(),
        nvrtc=_nvrtc(),
        packages=_versions(),
        gpu_trouble=trouble,
    )


def processor_name() -> str:
    """The processor's name as the kernel gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    import torch

    if ctypes.util.find_library("cuda") is None and not Path("/dev/nvidia0").exists():
        return (), ""
    try:
        found = [gpu_at(index) for index in range(torch.cuda.device_count())]
    except RuntimeError as error:  # a driver too old for this torch, a device that fell off the bus
        return (), str(error).splitlines()[0]
    if not found and Path("/dev/nvidia0").exists():
        built = torch.version.cuda or "no CUDA at all"
        return (), f"there is a GPU, but torch {torch.__version__} (built for {built}) cannot use it"
    return tuple(found), ""


def gpu_at(index: int) -> Gpu:
    """The GPU of that index, which is there; initialises CUDA in this process."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        index=index,
        name=properties.name,
        capability=(properties.major, properties.minor),
        sm_count=properties.multi_processor_count,
        memory_gib=properties.total_memory / 2**30,
        uuid=str(properties.uuid),
    )


def _driver() -> str:
    try:
        import pynvml
    except ImportError:
        return ""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def _gxx() -> str:
    path = shutil.which("g++")
    if path is None:
        return ""
    lines = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()  # noqa: S603  # the user's own compiler
    return lines[0] if lines else ""


def _nvrtc() -> str:
    try:
        from cupy.cuda import nvrtc

        return ".".join(map(str, nvrtc.getVersion()))
    except (ImportError, RuntimeError, OSError):  # CuPy says RuntimeError where the library is missing
        return ""


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
