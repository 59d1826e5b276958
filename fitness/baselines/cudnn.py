"""cuDNN's attention, as torch calls it."""

from collections.abc import Callable, Mapping

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fitness.backends.backend import Tensors
from fitness.baselines.sdpa import top_left_mask
from fitness.faults import BaselineUnavailableError
from fitness.scenario import Scenario


class CudnnBaseline:
    """cuDNN and nothing else: torch may not choose another kernel. Raises BaselineUnavailableError without a GPU."""

    def __init__(self) -> None:
        if not (torch.cuda.is_available() and torch.backends.cudnn.is_available()):  # type: ignore[no-untyped-call]  # torch publishes no types for it
            raise BaselineUnavailableError("baseline cudnn: torch finds no GPU or no cuDNN; choose baseline=sdpa")

    @property
    def name(self) -> str:
        """The configured name."""
        return "cudnn"

    @property
    def version(self) -> str:
        """Package and version."""
        return f"cuDNN {torch.backends.cudnn.version()}, torch {torch.__version__}"  # type: ignore[no-untyped-call]  # as above

    def cannot(self, scenario: Scenario) -> str:
        """Why it cannot compute a scenario; "" where it can."""
        return top_left_mask(scenario)

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """Its one way."""
        q, k, v = (tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v))
        grouped = scenario.heads != scenario.kv_heads

        def run() -> torch.Tensor:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return scaled_dot_product_attention(
                    q, k, v, is_causal=scenario.causal, enable_gqa=grouped
                ).transpose(1, 2)

        return {"default": run}
