"""A device made of torch: its candidates are Python functions, its clock is a list, and it writes down what happens."""

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from fitness.backends.backend import Tensors
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.plan import Build, LaunchPlan, ScenarioPlan, SuitePlan
from fitness.reference import compute_reference
from fitness.scenario import ElementType, Scenario

torch.set_num_threads(1)  # tests run side by side: more threads than processors only wait for each other

Kernel = Callable[[Tensors, Scenario], None]


def scenario(
    *, batch=1, heads=2, kv_heads=1, seqlen_q=64, seqlen_k=64, head_dim=32, causal=True, element_type=ElementType.BF16
):
    return Scenario(
        batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim,
        causal=causal, element_type=element_type,
    )  # fmt: skip


def empty_tensors(shape: Scenario) -> Tensors:
    element = torch.bfloat16 if shape.element_type is ElementType.BF16 else torch.float16
    queries = (shape.batch, shape.seqlen_q, shape.heads, shape.head_dim)
    keys = (shape.batch, shape.seqlen_k, shape.kv_heads, shape.head_dim)
    q, o = torch.zeros(queries, dtype=element), torch.zeros(queries, dtype=element)
    k, v = torch.zeros(keys, dtype=element), torch.zeros(keys, dtype=element)
    return Tensors(q=q, k=k, v=v, o=o, lse=torch.zeros(shape.batch, shape.heads, shape.seqlen_q))


def plan(shape: Scenario) -> ScenarioPlan:
    launch = LaunchPlan(kernel="attention", grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0)
    build = Build(defines=(("HEAD_DIM", shape.head_dim),), element_type=shape.element_type)
    return ScenarioPlan(scenario=shape, build=build, tensor_maps=(), workspaces=(), launches=(launch,))


def suite_plan(scenarios: Iterable[Scenario], edges: Iterable[Scenario] = ()) -> SuitePlan:
    return SuitePlan(scenarios=tuple(map(plan, scenarios)), edges=tuple(map(plan, edges)))


def binaries(of: SuitePlan, kernel: str) -> dict[Build, Path]:
    return dict.fromkeys(of.builds, Path(kernel))


class FakeBackend:
    """Binds the kernel that the binary's name says. `times_ms` are what its clock gives, over and over."""

    def __init__(self, kernels: Mapping[str, Kernel], times_ms: Iterable[float] = (1.0,)) -> None:
        self.kernels = kernels
        self.clock = itertools.cycle(times_ms)
        self.bulk_factor = 1.0  # how much longer a call takes among many
        self.events: list[str] = []

    @property
    def device(self):
        return torch.device("cpu")

    def bind(self, plan, binary):
        return FakeBound(self, plan.scenario, self.kernels[binary.name])

    def capture(self, call):
        return FakeBaselineReplay(self, call)

    def flush_cache(self):
        self.events.append("flush")

    def clocks(self):
        self.events.append("clocks")
        return {"sm_mhz": 1980.0, "celsius": 41.0}


class FakeReplay:
    def __init__(self, backend, call, name):
        self.backend, self.call, self.name = backend, call, name

    def run(self):
        self.backend.events.append(self.name)
        self.call()

    def time_ms(self):
        self.backend.events.append(f"time {self.name}")
        self.call()
        return next(self.backend.clock)

    def enqueue(self):
        self.backend.events.append(f"enqueue {self.name}")
        self.call()

    def bulk_ms(self, calls, *, behind=None):
        self.backend.events.append(f"bulk {self.name}")
        for _ in range(calls):
            if behind is not None:
                behind.call()
            self.call()
        return self.backend.bulk_factor * calls * (1 if behind is None else 2) * next(self.backend.clock)


class FakeBaselineReplay(FakeReplay):
    def __init__(self, backend, call):
        super().__init__(backend, self._keep, "baseline")
        self._attend = call
        self.output = call()

    def _keep(self):
        self.output = self._attend()


class FakeBound:
    def __init__(self, backend, shape, kernel):
        self.backend = backend
        self.tensors = empty_tensors(shape)
        self.outside = ""
        self.replay = FakeReplay(backend, lambda: kernel(self.tensors, shape), "candidate")

    def poison(self):
        self.backend.events.append("poison")
        self.tensors.o.fill_(torch.nan)
        self.tensors.lse.fill_(torch.nan)

    def violations(self):
        return "it wrote past the end of o" if bool((self.tensors.lse == 12345.0).any()) else ""


class FakeBaseline:
    """Attention by the reference; or what `attend` gives."""

    name = "fake"
    version = "fake 1"

    def __init__(self, refuses: str = "", attend: Callable[[Tensors, Scenario], torch.Tensor] | None = None) -> None:
        self.refuses = refuses
        self.attend = attend or right_o

    def cannot(self, shape):
        return self.refuses if shape.causal else ""

    def calls(self, tensors, shape):
        return {"default": lambda: self.attend(tensors, shape)}


def right_o(tensors: Tensors, shape: Scenario) -> torch.Tensor:
    return compute_reference(tensors.q, tensors.k, tensors.v, shape).o.to(tensors.q.dtype)


def right(tensors, shape):
    expected = compute_reference(tensors.q, tensors.k, tensors.v, shape)
    tensors.o.copy_(expected.o)
    tensors.lse.copy_(expected.lse)


def zeros(tensors, shape):
    right(tensors, shape)
    tensors.o.zero_()


def writes_nothing(tensors, shape):
    pass


def writes_its_inputs(tensors, shape):
    right(tensors, shape)
    tensors.k[..., 0] = 0.5


def writes_outside(tensors, shape):
    right(tensors, shape)
    tensors.lse[0, 0, 0] = 12345.0


def faults(tensors, shape):
    raise CandidateFault(Status.RUNTIME_ERROR, "an illegal address")


def crashes(tensors, shape):
    os.kill(os.getpid(), signal.SIGSEGV)


def loops(tensors, shape):
    while True:
        pass


KERNELS: dict[str, Kernel] = {
    "right": right, "zeros": zeros, "writes_nothing": writes_nothing, "writes_its_inputs": writes_its_inputs,
    "writes_outside": writes_outside, "faults": faults, "crashes": crashes, "loops": loops,
}  # fmt: skip
