"""The seam between judging and running: what correctness and timing ask of a device. Lives inside the worker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from fitness.plan import ScenarioPlan
from fitness.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """One call's tensors, in the layout of FlashAttention; lse float32 `[batch, heads, seqlen_q]`."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    lse: torch.Tensor


class Replay(Protocol):
    """A call made ready once, so that replaying it costs no host work."""

    def run(self) -> None:
        """Make the call and wait for its end."""

    def enqueue(self) -> None:
        """Make the call, or see to it that the device makes it before all that comes later."""

    def time_ms(self) -> float:
        """Make the call alone on the device and give its milliseconds."""

    def bulk_ms(self, calls: int, *, behind: "Replay | None" = None) -> float:
        """Make the call so many times, one right after another, and give the milliseconds of them all.

        With `behind` each comes right after a call of that one, whose time is in it.
        """


class BaselineReplay(Replay, Protocol):
    """A baseline's call made ready."""

    @property
    def output(self) -> torch.Tensor:
        """o of the last call, `[batch, seqlen_q, heads, head_dim]`; there is one from the start."""


class Bound(Protocol):
    """A candidate on its own guarded copy of a scenario's tensors, ready to be called again and again."""

    @property
    def tensors(self) -> Tensors:
        """What the candidate reads and writes; inputs are changed in place between calls."""

    @property
    def replay(self) -> Replay:
        """The candidate's launches, with the clearing of `zeroed` workspaces inside."""

    def poison(self) -> None:
        """Fill o and lse with NaN patterns, and every workspace that is not `zeroed` with those or with small numbers.

        Of the first two calls one finds small numbers there and the other NaN patterns.
        """

    def violations(self) -> str:
        """What was written outside the outputs and workspaces, in words; "" where nothing was."""


class Backend(Protocol):
    """A device on which candidates and baselines run."""

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""

    def bind(self, plan: ScenarioPlan, binary: Path) -> Bound:
        """Load a build and lay out a scenario. Raises CandidateFault where the candidate is why that fails."""

    def capture(self, call: Callable[[], torch.Tensor]) -> BaselineReplay:
        """A baseline's call, which gives o, made ready in the same way as a candidate's."""

    def flush_cache(self) -> None:
        """Evict the inputs, so that every timed call finds a cold cache."""

    def clocks(self) -> dict[str, float]:
        """Clock rates and temperature now (`sm_mhz`, `memory_mhz`, `celsius`); empty where nothing tells them."""


class Baseline(Protocol):
    """An attention that candidates are measured against."""

    @property
    def name(self) -> str:
        """The configured name: fa3, fa4, cudnn, sdpa."""

    @property
    def version(self) -> str:
        """Package and version."""

    def cannot(self, scenario: Scenario) -> str:
        """Why it cannot compute a scenario, in a few words; "" where it can."""

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """Calls by the setting they use; each gives o of these very q, k and v. The fastest is compared with."""
