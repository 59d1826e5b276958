"""FlashAttention-3, from whichever of its packages is installed, at its best setting for each scenario."""

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from types import ModuleType

import torch

from fitness.backends.backend import Tensors
from fitness.baselines.capability import Capability, gpu_capability
from fitness.faults import BaselineUnavailableError
from fitness.scenario import ElementType, Scenario

_PACKAGES = (("tokenspeed-fa3", "flash_attn_interface"), ("fa3-fwd", "fa3_fwd_interface"))
_BF16_ONLY = frozenset({"fa3-fwd"})
_SPLITS = (1, 0)  # one pass over the keys, which is the default; or as many parts as its own heuristic says


class Fa3Baseline:
    """FlashAttention-3's forward pass, on a GPU of this `capability`.

    Raises BaselineUnavailableError where neither package can be imported, or the GPU is not of the Hopper family.
    """

    def __init__(self, capability: Callable[[], Capability | None] = gpu_capability) -> None:
        _require_hopper(capability())  # first: no package helps on another GPU
        self._package, self._module = _find()
        self._version = importlib.metadata.version(self._package)

    @property
    def name(self) -> str:
        """The configured name."""
        return "fa3"

    @property
    def version(self) -> str:
        """Package and version."""
        return f"{self._package} {self._version}"

    def cannot(self, scenario: Scenario) -> str:
        """Why it cannot compute a scenario; "" where it can."""
        if self._package in _BF16_ONLY and scenario.element_type is not ElementType.BF16:
            return f"{self._package} has bf16 only"
        if scenario.head_dim > 256 or scenario.head_dim % 8:
            return "head_dim must be a multiple of 8, at most 256"
        return ""

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """One call for each way of splitting the keys; its default of one part is slow for few queries."""
        attend = self._module.flash_attn_func

        def call(num_splits: int) -> Callable[[], torch.Tensor]:
            def run() -> torch.Tensor:
                found = attend(tensors.q, tensors.k, tensors.v, causal=scenario.causal, num_splits=num_splits)
                o: torch.Tensor = found[0] if isinstance(found, tuple) else found
                return o

            return run

        return {f"num_splits={num_splits}": call(num_splits) for num_splits in _SPLITS}


def _find() -> tuple[str, ModuleType]:
    troubles = []
    for package, module in _PACKAGES:
        try:
            return package, importlib.import_module(module)
        except (ImportError, OSError, RuntimeError) as error:  # a missing library, or one built for another torch
            troubles.append(f"{module}: {error}")
    raise BaselineUnavailableError(
        f"baseline fa3: {'; '.join(troubles)}; install it with: pip install tokenspeed-fa3"
    )


def _require_hopper(capability: Capability | None) -> None:
    if capability is None:
        raise BaselineUnavailableError("baseline fa3: torch finds no GPU; choose baseline=sdpa")
    major, minor = capability
    if major != 9:
        raise BaselineUnavailableError(
            f"baseline fa3: FlashAttention-3 is made for sm_90, and this GPU is sm_{major}{minor}; choose baseline=sdpa"
        )
