"""FlashAttention-4, which compiles itself for each class of shapes when it is first called."""

import importlib.metadata
from collections.abc import Callable, Mapping

import torch

from fitness.backends.backend import Tensors
from fitness.baselines.capability import Capability, gpu_capability
from fitness.faults import BaselineUnavailableError
from fitness.scenario import Scenario


class Fa4Baseline:
    """FlashAttention-4's forward pass, on a GPU of this `capability`.

    Raises BaselineUnavailableError where it cannot be imported or run.
    """

    def __init__(self, capability: Callable[[], Capability | None] = gpu_capability) -> None:
        if (capability() or (0, 0)) < (9, 0):
            raise BaselineUnavailableError("baseline fa4: it needs a GPU of sm_90 or newer; choose baseline=sdpa")
        try:
            from flash_attn.cute import flash_attn_func

            self._version = importlib.metadata.version("flash-attn-4")
        except (ImportError, OSError, RuntimeError) as error:
            raise BaselineUnavailableError(
                f"baseline fa4: {error}; install it with: pip install --pre flash-attn-4 'nvidia-cutlass-dsl[cu13]'"
            ) from error
        self._attend = flash_attn_func

    @property
    def name(self) -> str:
        """The configured name."""
        return "fa4"

    @property
    def version(self) -> str:
        """Package and version."""
        return f"flash-attn-4 {self._version}"

    def cannot(self, scenario: Scenario) -> str:
        """Why it cannot compute a scenario; "" where it can."""
        return "" if scenario.head_dim <= 256 and scenario.head_dim % 8 == 0 else "head_dim must be 8, 16 … 256"

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """Its one way, which chooses for itself."""

        def run() -> torch.Tensor:
            found = self._attend(tensors.q, tensors.k, tensors.v, causal=scenario.causal)
            o: torch.Tensor = found[0] if isinstance(found, tuple) else found
            return o

        return {"default": run}
