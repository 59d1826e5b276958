"""The real thing: cubins loaded and launched by CuPy, captured in CUDA graphs, on tensors that torch holds.

Only a worker's process imports this: it needs a GPU. Both sides of a comparison are graph replays timed by events, so
that what is measured is the device's work and never the host's.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import cupy
import torch

from fitness.backends.backend import Replay, Tensors
from fitness.backends.cuda_graphs import GraphMaker
from fitness.backends.cuda_guards import GuardZones, ZoneRenewer
from fitness.backends.cuda_memory import GuardedBuffer
from fitness.backends.cuda_scrubber import Scrubber, release_kept_lines
from fitness.backends.cuda_stamps import CudaStamps
from fitness.backends.leftovers import Leftovers
from fitness.backends.nan_words import nan_generator
from fitness.backends.tensor_maps import encode_tensor_map
from fitness.device_errors import candidates_fault
from fitness.faults import EnvironmentFault
from fitness.parameters import pack_parameters
from fitness.plan import LaunchPlan, ScenarioPlan
from fitness.scenario import ElementType

_TORCH_TYPES = {ElementType.BF16: torch.bfloat16, ElementType.FP16: torch.float16}
_FLUSH_BYTES = 1 << 28  # at least; reading it takes long enough for the host to enqueue the timed call behind it
_DEVICE_ERRORS = (
    cupy.cuda.runtime.CUDARuntimeError,
    cupy.cuda.driver.CUDADriverError,
    torch.AcceleratorError,
    torch.OutOfMemoryError,
)


class CudaBackend:
    """One GPU. `device_index` counts after CUDA_VISIBLE_DEVICES."""

    def __init__(self, *, device_index: int) -> None:
        if not torch.cuda.is_available() or device_index >= torch.cuda.device_count():
            raise EnvironmentFault(f"no GPU with the index {device_index}; {torch.cuda.device_count()} are visible")
        self._device = torch.device("cuda", device_index)
        torch.cuda.set_device(self._device)
        cupy.cuda.Device(device_index).use()
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._flush_source = torch.zeros(
            max(_FLUSH_BYTES, 2 * torch.cuda.get_device_properties(self._device).L2_cache_size) // 4,
            dtype=torch.int32,
            device=self._device,
        )
        self._flush_sum = torch.zeros((), dtype=torch.int64, device=self._device)
        self._graphs = GraphMaker(self._device)
        self._scrubber = Scrubber(device_index)
        self._renewer = ZoneRenewer()
        self._nans = nan_generator(self._device)
        self._clocks = _open_clocks(self._device)
        torch.cuda.synchronize()  # a device that does not work is told here, before any candidate

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self._device

    def bind(self, plan: ScenarioPlan, binary: Path) -> "CudaBound":
        """Load a build and lay out a scenario. Raises CandidateFault where the candidate is why that fails.

        Raises the device's own error where memory runs out: whose fault that is depends on what was asked for.
        """
        with _candidates_fault("loading it"):
            module = cupy.RawModule(path=str(binary))
            module.compile()  # CuPy is lazy: load now, not at the first launch
        return CudaBound(plan, module, self._device, self._graphs, self._scrubber, self._renewer, self._nans)

    def capture(self, call: Callable[[], torch.Tensor]) -> "CudaReplay":
        """A baseline's call in a graph; its output tensor is the same at every replay."""
        self._graphs.rehearse(call)
        outputs: list[torch.Tensor] = []
        graph = self._graphs.capture(lambda: outputs.append(call()))
        return CudaReplay(graph, outputs[0], contextlib.nullcontext)

    def flush_cache(self) -> None:
        """Evict the inputs from the L2 by reading: a cache full of dirty lines would be billed to the timed call.

        Lines that a candidate asked to be kept there are first made like any other.
        """
        release_kept_lines()
        torch.sum(self._flush_source, dim=0, out=self._flush_sum)

    def clocks(self) -> dict[str, float]:
        """`sm_mhz`, `memory_mhz`, `celsius`, `watts` now; empty without nvidia-ml-py."""
        return self._clocks()


class CudaBound:
    """A candidate on its own guarded tensors, its launches captured in one graph."""

    def __init__(
        self, plan: ScenarioPlan, module: cupy.RawModule, device: torch.device, graphs: GraphMaker, scrubber: Scrubber,
        renewer: ZoneRenewer, nans: torch.Generator,
    ) -> None:  # fmt: skip
        self._scrubber, self._nans, self._leftovers = scrubber, nans, Leftovers(nans)
        self._module, self._device = module, device
        self._buffers, self._tensors = _lay_out(plan, device)
        with _candidates_fault("allocating its workspaces"):
            self._workspaces = [None if each is None else GuardedBuffer(each.size, device) for each in plan.workspaces]
        self._zeroed = [
            buffer
            for buffer, each in zip(self._workspaces, plan.workspaces, strict=True)
            if buffer is not None and each is not None and each.zeroed
        ]
        named = {f"workspace[{i}]": buffer for i, buffer in enumerate(self._workspaces) if buffer is not None}
        self._zones = GuardZones(self._buffers | named, device, renewer)
        arguments = (self._parameters(plan), *self._maps(plan))
        launches = [_Launch(module, launch, arguments) for launch in plan.launches]

        def call() -> None:
            for buffer in self._zeroed:
                buffer.bytes.zero_()
            for launch in launches:
                launch()

        with _candidates_fault("launching it"):
            self._replay = CudaReplay(graphs.capture(call), self._tensors.o, lambda: _candidates_fault("running it"))

    @property
    def tensors(self) -> Tensors:
        """What the candidate reads and writes."""
        return self._tensors

    @property
    def replay(self) -> "CudaReplay":
        """The launches, with the clearing of `zeroed` workspaces inside."""
        return self._replay

    def poison(self) -> None:
        """Fill o and lse with NaN patterns, and every workspace that is not `zeroed` with its leftovers.

        All guard zones are filled too, and the device's shared memory: nothing is left of the call before.
        """
        self._zones.renew()
        self._buffers["o"].poison(self._nans)
        self._buffers["lse"].poison(self._nans)
        self._leftovers.put_into(
            buffer.bytes for buffer in filter(None, self._workspaces) if buffer not in self._zeroed
        )
        self._scrubber.scrub()  # last: kernels that fill or compare may use shared memory themselves

    def stamps(self) -> CudaStamps:
        """Those that it leaves, where its PTX was stamped. Raises CandidateFault where it was not."""
        with _candidates_fault("finding its stamps"):
            return CudaStamps(self._module, self._device)

    def violations(self) -> str:
        """The tensors beside which something was written, in words; "" where nothing was."""
        touched = self._zones.touched()
        return f"the candidate wrote outside of {', '.join(touched)}" if touched else ""

    def _parameters(self, plan: ScenarioPlan) -> object:
        addresses = {name: buffer.address for name, buffer in self._buffers.items()}
        return pack_parameters(
            **addresses,
            workspaces=[0 if buffer is None else buffer.address for buffer in self._workspaces],
            scenario=plan.scenario,
            softmax_scale=plan.scenario.head_dim**-0.5,
        )

    def _maps(self, plan: ScenarioPlan) -> list[object]:
        return [
            encode_tensor_map(each, None if each is None else getattr(self._tensors, each.tensor))
            for each in plan.tensor_maps
        ]


class CudaReplay:
    """A captured call; `output` is where it leaves its result. `guard` says whose fault an error in it is."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        output: torch.Tensor,
        guard: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._graph = graph
        self._guard = guard
        self.output = output
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch publishes no type for it

    def run(self) -> None:
        """Make the call and wait for its end."""
        with self._guard():
            self._graph.replay()
            torch.cuda.synchronize()

    def enqueue(self) -> None:
        """Have the device make the call next."""
        with self._guard():
            self._graph.replay()

    def time_ms(self) -> float:
        """Milliseconds of the call between two events, enqueued behind whatever the device is busy with."""
        return self.bulk_ms(1)

    def bulk_ms(self, calls: int, *, behind: Replay | None = None) -> float:
        """Milliseconds of so many calls back to back between two events, those of `behind` included."""
        with self._guard():
            self._start.record()
            for _ in range(calls):
                if behind is not None:
                    behind.enqueue()
                self._graph.replay()
            self._end.record()
            torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))


class _Launch:
    """One kernel of a candidate with its arguments, ready to be enqueued on torch's current stream."""

    def __init__(self, module: cupy.RawModule, plan: LaunchPlan, arguments: tuple[object, ...]) -> None:
        with _candidates_fault(f"finding kernel {plan.kernel}"):
            self._kernel = module.get_function(plan.kernel)
            self._kernel.max_dynamic_shared_size_bytes = plan.shared_bytes
        self._plan = plan
        self._arguments = arguments

    def __call__(self) -> None:
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        with stream:
            self._kernel(self._plan.grid, self._plan.block, self._arguments, shared_mem=self._plan.shared_bytes)


def context_is_lost() -> bool:
    """Whether a kernel broke while it ran: then every later call fails too."""
    try:
        torch.cuda.synchronize()
    except torch.AcceleratorError:
        return True
    return False


def _candidates_fault(activity: str) -> contextlib.AbstractContextManager[None]:
    """An error of the device within it is the candidate's, where it can be; the context may be lost with it."""
    return candidates_fault(activity, _DEVICE_ERRORS)


def _lay_out(plan: ScenarioPlan, device: torch.device) -> tuple[dict[str, GuardedBuffer], Tensors]:
    scenario = plan.scenario
    element = _TORCH_TYPES[scenario.element_type]
    queries = (scenario.batch, scenario.seqlen_q, scenario.heads, scenario.head_dim)
    keys = (scenario.batch, scenario.seqlen_k, scenario.kv_heads, scenario.head_dim)
    rows = (scenario.batch, scenario.heads, scenario.seqlen_q)
    shapes = {
        "q": (queries, element),
        "k": (keys, element),
        "v": (keys, element),
        "o": (queries, element),
        "lse": (rows, torch.float32),
    }
    buffers = {
        name: GuardedBuffer(torch.Size(shape).numel() * dtype.itemsize, device)
        for name, (shape, dtype) in shapes.items()
    }
    tensors = {name: buffers[name].as_tensor(shape, dtype) for name, (shape, dtype) in shapes.items()}
    return buffers, Tensors(**tensors)


def _open_clocks(device: torch.device) -> Callable[[], dict[str, float]]:
    """A reader of the device's clocks; one that reads nothing where nvidia-ml-py is missing."""
    try:
        import pynvml
    except ImportError:
        return dict
    try:
        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        return dict

    def read() -> dict[str, float]:
        return {
            "sm_mhz": float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "memory_mhz": float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "celsius": float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            "watts": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }

    return read
