"""The operator that torch sees: it allocates the results, and finds for each shape the call that was made ready once.

What a call costs the host is what decides whether a fast kernel is fast in use, so nothing is worked out twice: the
checks, the plan and the build hang on the shapes alone, and are behind one look into a dictionary.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import torch

from fitness.backends.backend import Tensors
from fitness.runtime.call_scenario import call_scenario, check_tensors, require_tensors
from fitness.scenario import Scenario

KEPT_CALLS = 1024  # shapes that stay ready; the oldest makes room
_ALIGNMENT = 128  # bytes, of a tensor's address: what the contract promises a kernel


class PreparedCall(Protocol):
    """A kernel made ready for one shape on one device."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, scale: float
    ) -> None:
        """Enqueue it on the device's current stream; the tensors are contiguous. Any number of threads may call."""


class Device(Protocol):
    """Where a kernel runs."""

    def prepare(self, scenario: Scenario, tensors: Tensors) -> PreparedCall:
        """Build and load what the scenario needs; `tensors` are like those of its calls."""


class AttentionOperator:
    """A kernel as `o, lse = attention(q, k, v, causal=True)`: a torch operator under the name `name`.

    `torch.compile` takes it whole and CUDA graphs capture it. It is a forward pass: torch refuses to go backward
    through it. `open_device` is asked once for each device that a call's tensors lie on, after `check` has let the
    call's shape pass: it may raise CandidateFault.
    """

    def __init__(
        self, name: str, open_device: Callable[[torch.device], Device], check: Callable[[Scenario], object]
    ) -> None:
        self._open_device = open_device
        self._check = check
        self._devices: dict[torch.device, Device] = {}
        self._calls: dict[object, PreparedCall] = {}
        self._preparing = threading.Lock()
        self.torch_operator = torch.library.custom_op(name, self._run, mutates_args=(), schema=_SCHEMA)
        self.torch_operator.register_fake(_traced)

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool = False,
        softmax_scale: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """o as q, `[batch, seqlen_q, heads, head_dim]`, and lse float32 `[batch, heads, seqlen_q]`.

        q as o; k and v `[batch, seqlen_k, kv_heads, head_dim]`; bfloat16 or float16, on one GPU. A causal mask is
        bottom-right aligned. softmax_scale: head_dim ** -0.5 unless given. A tensor that is not contiguous, or whose
        address is no multiple of 128, is copied first. The first call of a shape plans, and compiles what is not in the
        cache, which no CUDA graph can capture.

        Raises TypeError for what is no tensor, ValueError for tensors that do not belong together, CandidateFault where
        the kernel does not support them or does not launch, EnvironmentFault where there is no GPU or a package is
        missing.
        """
        require_tensors({"q": q, "k": k, "v": v})  # torch's own word for it names its schema
        results: tuple[torch.Tensor, torch.Tensor] = self.torch_operator(q, k, v, causal, softmax_scale)
        return results

    def _run(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, softmax_scale: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key = (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, causal)
        call = self._calls.get(key) or self._prepared(key, q, k, v, causal)
        q, k, v = _plain(q), _plain(k), _plain(v)
        o, lse = _results(q)
        call(q, k, v, o, lse, q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale)
        return o, lse

    def _prepared(self, key: object, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> PreparedCall:
        scenario = call_scenario(q, k, v, causal=causal)
        self._check(scenario)
        with self._preparing:
            if key in self._calls:  # another thread was here first
                return self._calls[key]
            if q.device not in self._devices:
                self._devices[q.device] = self._open_device(q.device)
            q, k, v = _plain(q), _plain(k), _plain(v)
            o, lse = _results(q)
            call = self._devices[q.device].prepare(scenario, Tensors(q=q, k=k, v=v, o=o, lse=lse))
            while len(self._calls) >= KEPT_CALLS:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = call
            return call


_SCHEMA = "(Tensor q, Tensor k, Tensor v, bool causal, float? softmax_scale) -> (Tensor, Tensor)"


def _traced(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, softmax_scale: float | None  # noqa: ARG001  # torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a call gives where tensors have shapes alone, and whatever it refuses is refused."""
    check_tensors(q, k, v)
    return _results(q)


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse, unwritten."""
    batch, seqlen_q, heads, _ = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    return o, torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous() and tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
