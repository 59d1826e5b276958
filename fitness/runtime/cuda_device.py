"""A kernel on one GPU, launched through the driver on torch's streams with arguments that were packed once.

Only the addresses change from call to call: they are written over those of the call before, in the packed parameters
and in the tensor maps. The driver copies arguments as it launches, so a captured graph keeps those of its own call.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from fitness.backends.backend import Tensors
from fitness.backends.tensor_maps import encode_tensor_map
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.manifest import Manifest
from fitness.plan import Build, LaunchPlan, ScenarioPlan, TensorMapPlan, WorkspacePlan
from fitness.planner import plan_scenario
from fitness.probe import Gpu, gpu_at
from fitness.runtime.arguments import Parameters
from fitness.scenario import Scenario

_MAP_ALIGNMENT = 64  # bytes, which the driver asks for


class CudaDevice:
    """One GPU with the builds of one kernel that were loaded on it. They stay loaded: a graph may hold them."""

    def __init__(self, manifest: Manifest, build: Callable[[Build, str], Path], device: torch.device) -> None:
        self._manifest = manifest
        self._build = build
        self._device = device
        self._gpu = _able_gpu(manifest, device)
        ordinal = _checked("finding the device", driver.cuDeviceGet(device.index))
        self._context = _checked("using the device", driver.cuDevicePrimaryCtxRetain(ordinal))
        self._modules: dict[Build, _Module] = {}

    def prepare(self, scenario: Scenario, tensors: Tensors) -> "CudaCall":
        """The scenario's call. Raises CandidateFault, EnvironmentFault, or ValueError within a capture."""
        if torch.cuda.is_current_stream_capturing():
            raise ValueError(f"the shape {scenario.name} was not called before this capture; call it once beforehand")
        plan = plan_scenario(self._manifest, scenario, self._gpu.sm_count)
        if plan.build not in self._modules:
            binary = self._build(plan.build, self._gpu.arch)
            with _current(self._context):
                self._modules[plan.build] = _Module(binary)
        with _current(self._context):
            functions = [self._modules[plan.build].function(launch) for launch in plan.launches]
        return CudaCall(plan, functions, self._context, self._device, tensors)


class CudaCall:
    """A kernel's launches for one shape, with their arguments."""

    def __init__(
        self, plan: ScenarioPlan, functions: Sequence[driver.CUfunction], context: driver.CUcontext,
        device: torch.device, tensors: Tensors,
    ) -> None:  # fmt: skip
        self._context, self._device, self._workspaces = context, device, plan.workspaces
        self._lock = threading.Lock()  # from writing to launching the arguments belong to one thread
        self._parameters = Parameters(plan.scenario)
        self._maps = [_Map(each, tensors) for each in plan.tensor_maps]
        addresses = [self._parameters.address, *(each.address for each in self._maps)]
        self._arguments = (ctypes.c_void_p * len(addresses))(*addresses)
        self._launches = [
            (function, *launch.grid, *launch.block, launch.shared_bytes)
            for function, launch in zip(functions, plan.launches, strict=True)
        ]

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, scale: float
    ) -> None:
        """Enqueue the launches. Raises CandidateFault where the driver refuses them."""
        workspaces = [None if each is None else self._workspace(each) for each in self._workspaces]
        stream = torch.cuda.current_stream(self._device).cuda_stream
        arguments = ctypes.addressof(self._arguments)
        with self._lock:
            self._parameters.write((q, k, v, o, lse), workspaces, scale)
            for each in self._maps:
                each.write(q, k, v, o)
            with _current(self._context):
                for launch in self._launches:
                    _checked("launching it", driver.cuLaunchKernel(*launch, stream, arguments, 0))

    def _workspace(self, plan: WorkspacePlan) -> torch.Tensor:
        allocate = torch.zeros if plan.zeroed else torch.empty
        return allocate(plan.size, dtype=torch.uint8, device=self._device)


class _Map:
    """A tensor map in place; zeros in a slot that is left out."""

    def __init__(self, plan: TensorMapPlan | None, tensors: Tensors) -> None:
        encoded = encode_tensor_map(plan, None if plan is None else getattr(tensors, plan.tensor)).tobytes()
        self._tensor = "" if plan is None else plan.tensor
        self._bytes = (ctypes.c_char * (len(encoded) + _MAP_ALIGNMENT))()
        start = ctypes.addressof(self._bytes)
        self.address = start + -start % _MAP_ALIGNMENT
        ctypes.memmove(self.address, encoded, len(encoded))
        self._map = driver.CUtensorMap(self.address)
        self._pointer = 0

    def write(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor) -> None:
        if not self._tensor:
            return
        pointer = {"q": q, "k": k, "v": v, "o": o}[self._tensor].data_ptr()
        if pointer != self._pointer:
            _checked(f"the tensor map of {self._tensor}", driver.cuTensorMapReplaceAddress(self._map, pointer))
            self._pointer = pointer


class _Module:
    """A loaded build. Called where its context is current."""

    def __init__(self, binary: Path) -> None:
        self._module = _checked("loading it", driver.cuModuleLoadData(binary.read_bytes()))
        self._shared: dict[str, int] = {}

    def function(self, launch: LaunchPlan) -> driver.CUfunction:
        """The launch's kernel, allowed as much shared memory as any launch of it has asked for."""
        function = _checked(
            f"finding kernel {launch.kernel}", driver.cuModuleGetFunction(self._module, launch.kernel.encode())
        )
        if launch.shared_bytes > self._shared.get(launch.kernel, 0):
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = f"asking for {launch.shared_bytes} bytes of shared memory"
            _checked(asked, driver.cuFuncSetAttribute(function, limit, launch.shared_bytes))
            self._shared[launch.kernel] = launch.shared_bytes
        return function


def _able_gpu(manifest: Manifest, device: torch.device) -> Gpu:
    if not torch.cuda.is_available():
        raise EnvironmentFault(f"the kernel needs an NVIDIA GPU; torch {torch.__version__} finds none")
    gpu = gpu_at(device.index)
    if not gpu.targets.intersection(manifest.targets):
        raise CandidateFault(
            Status.UNSUPPORTED,
            f"targets {', '.join(manifest.targets)}; {gpu.name} runs {', '.join(sorted(gpu.targets))}",
        )
    return gpu


@contextmanager
def _current(context: driver.CUcontext) -> Iterator[None]:
    """The device's context is current within it, whatever device torch has chosen, and in a fresh thread too."""
    _checked("using the device", driver.cuCtxPushCurrent(context))
    try:
        yield
    finally:
        driver.cuCtxPopCurrent()


def _checked(activity: str, result: tuple[Any, ...]) -> object:
    """What a call of the driver gave. Raises CandidateFault where it failed."""
    error, *values = result
    if error:
        raise CandidateFault(Status.RUNTIME_ERROR, f"{activity} failed: {error.name}")
    return values[0] if values else None
