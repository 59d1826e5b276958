"""The host backend: portable candidates, compiled by g++, on this machine's processor. Its numbers are the processor's.

A candidate runs in this very process: what it may do to the machine is the worker's concern, and a crash is the
worker's end.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import torch

from fitness.backends.backend import Replay, Tensors
from fitness.backends.host_library import HostLibrary, Launch
from fitness.backends.host_memory import GuardedBuffer
from fitness.backends.leftovers import Leftovers
from fitness.backends.nan_words import nan_generator
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.parameters import pack_parameters
from fitness.plan import ScenarioPlan
from fitness.scenario import ElementType, Scenario

MAX_FLUSH_BYTES = 128 << 20
_FALLBACK_CACHE_BYTES = 32 << 20  # where the system does not tell the size of its caches
_DTYPES = {ElementType.BF16: torch.bfloat16, ElementType.FP16: torch.float16}


class HostBackend:
    """The processor as a device, with `threads` of its threads for a candidate's blocks and for torch alike.

    Sets torch's number of threads in this process.
    """

    def __init__(self, *, threads: int) -> None:
        if threads < 1:
            raise EnvironmentFault(f"host backend: {threads} threads; expected at least 1")
        self._threads = threads
        torch.set_num_threads(threads)
        self._flushed = torch.zeros(min(2 * last_level_cache_bytes(), MAX_FLUSH_BYTES), dtype=torch.uint8)

    @property
    def device(self) -> torch.device:
        """The processor."""
        return torch.device("cpu")

    def bind(self, plan: ScenarioPlan, binary: Path) -> "HostBound":
        """Load a build and lay out a scenario.

        Raises CandidateFault for a build that does not load, MemoryError where memory runs out: whose fault that is
        depends on what was asked for.
        """
        if any(plan.tensor_maps):
            raise CandidateFault(Status.UNSUPPORTED, "tensor maps need a GPU; the host backend runs portable kernels")
        return HostBound(plan, HostLibrary(binary, self._threads))

    def capture(self, call: Callable[[], torch.Tensor]) -> "HostBaselineReplay":
        """A baseline's call, made once."""
        return HostBaselineReplay(call)

    def flush_cache(self) -> None:
        """Evict the inputs by writing twice the last-level cache, at most 128 MiB."""
        self._flushed.add_(1)

    def clocks(self) -> dict[str, float]:
        """Nothing: processors do not tell a clock rate that holds for the next call."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _Workspace:
    buffer: GuardedBuffer
    zeroed: bool


class HostBound:
    """A portable candidate on its own guarded tensors."""

    def __init__(self, plan: ScenarioPlan, library: HostLibrary) -> None:
        self._buffers, self._tensors = _lay_out(plan.scenario)
        self._workspaces = [
            None if spec is None else _Workspace(buffer=GuardedBuffer(f"workspace {i}", spec.size), zeroed=spec.zeroed)
            for i, spec in enumerate(plan.workspaces)
        ]
        parameters = pack_parameters(
            **{name: buffer.address for name, buffer in self._buffers.items()},
            workspaces=[0 if workspace is None else workspace.buffer.address for workspace in self._workspaces],
            scenario=plan.scenario,
            softmax_scale=1 / math.sqrt(plan.scenario.head_dim),
        )
        launches = [library.launcher(launch, parameters.tobytes()) for launch in plan.launches]
        zeroed = [space.buffer for space in self._workspaces if space is not None and space.zeroed]
        self._replay = HostReplay(launches, zeroed)
        self._forget = library.forget
        self._nans = nan_generator(self._tensors.o.device)
        self._leftovers = Leftovers(self._nans)

    @property
    def tensors(self) -> Tensors:
        """What the candidate reads and writes."""
        return self._tensors

    @property
    def replay(self) -> "HostReplay":
        """The candidate's launches, in order."""
        return self._replay

    def poison(self) -> None:
        """Fill o, lse, the threads' stacks and all guard zones with NaN, and workspaces with their leftovers.

        Those that are `zeroed` are cleared by the call itself.
        """
        self._forget()
        for buffer in (*self._buffers.values(), *(space.buffer for space in self._workspaces if space is not None)):
            buffer.poison_margins()
        self._buffers["o"].poison(self._nans)
        self._buffers["lse"].poison(self._nans)
        spaces = [space.buffer for space in self._workspaces if space is not None and not space.zeroed]
        self._leftovers.put_into(buffer.tensor(torch.uint8, (buffer.size,)) for buffer in spaces)

    def violations(self) -> str:
        """What was written beside tensors and workspaces (further off is a page without access)."""
        spaces = [workspace.buffer for workspace in self._workspaces if workspace is not None]
        return "; ".join(filter(None, (buffer.violation() for buffer in (*self._buffers.values(), *spaces))))


class HostReplay:
    """Launches in order, after the clearing of workspaces.

    `run` goes forwards and backwards through blocks and threads by turns, so that a kernel that leans on one order
    (for want of a barrier, say) is wrong in every second check; `time_ms` always goes forwards.
    """

    def __init__(self, launches: Sequence[Launch], zeroed: Sequence[GuardedBuffer]) -> None:
        self._launches, self._zeroed = launches, zeroed
        self._orders = cycle((False, True))

    def run(self) -> None:
        """Make the call. Raises CandidateFault where a launch fails."""
        self._call(backwards=next(self._orders))

    def time_ms(self) -> float:
        """Milliseconds of wall-clock time. Raises CandidateFault where a launch fails."""
        return self.bulk_ms(1)

    def enqueue(self) -> None:
        """Make the call. Raises CandidateFault where a launch fails."""
        self._call(backwards=False)

    def bulk_ms(self, calls: int, *, behind: Replay | None = None) -> float:
        """Milliseconds of wall-clock time of so many calls. Raises CandidateFault where a launch fails."""
        return _wall_ms(self, calls, behind)

    def _call(self, *, backwards: bool) -> None:
        for buffer in self._zeroed:
            buffer.clear()
        for launch in self._launches:
            launch(backwards)


class HostBaselineReplay:
    """A baseline's call, and the output of the last one."""

    def __init__(self, call: Callable[[], torch.Tensor]) -> None:
        self._call = call
        self._output = call()

    @property
    def output(self) -> torch.Tensor:
        """o of the last call."""
        return self._output

    def run(self) -> None:
        """Make the call."""
        self._output = self._call()

    def time_ms(self) -> float:
        """Milliseconds of wall-clock time."""
        return self.bulk_ms(1)

    def enqueue(self) -> None:
        """Make the call."""
        self.run()

    def bulk_ms(self, calls: int, *, behind: Replay | None = None) -> float:
        """Milliseconds of wall-clock time of so many calls."""
        return _wall_ms(self, calls, behind)


def _wall_ms(replay: Replay, calls: int, behind: Replay | None) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        if behind is not None:
            behind.enqueue()
        replay.enqueue()
    return (time.perf_counter_ns() - start) / 1e6


def last_level_cache_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """The size of the largest cache that Linux lists for the first processor; 32 MiB where it lists none."""
    texts = [path.read_text(encoding="ascii").strip() for path in caches.glob("index*/size")]  # "32768K"
    sizes = [int(text.removesuffix("K")) << 10 for text in texts]
    return max(sizes, default=_FALLBACK_CACHE_BYTES)


def _lay_out(scenario: Scenario) -> tuple[dict[str, GuardedBuffer], Tensors]:
    dtype = _DTYPES[scenario.element_type]
    queries = (scenario.batch, scenario.seqlen_q, scenario.heads, scenario.head_dim)
    keys = (scenario.batch, scenario.seqlen_k, scenario.kv_heads, scenario.head_dim)
    kinds = {
        "q": (dtype, queries), "k": (dtype, keys), "v": (dtype, keys), "o": (dtype, queries),
        "lse": (torch.float32, (scenario.batch, scenario.heads, scenario.seqlen_q)),
    }  # fmt: skip
    buffers = {
        name: GuardedBuffer(name, dtype.itemsize * torch.Size(shape).numel()) for name, (dtype, shape) in kinds.items()
    }
    return buffers, Tensors(**{name: buffers[name].tensor(*kind) for name, kind in kinds.items()})
