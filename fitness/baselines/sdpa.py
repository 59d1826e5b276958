"""torch's own scaled_dot_product_attention, on a processor or a GPU."""

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import scaled_dot_product_attention

from fitness.backends.backend import Tensors
from fitness.scenario import Scenario


class SdpaBaseline:
    """Whichever of its kernels torch picks for the device."""

    @property
    def name(self) -> str:
        """The configured name."""
        return "sdpa"

    @property
    def version(self) -> str:
        """Package and version."""
        return f"torch {torch.__version__}"

    def cannot(self, scenario: Scenario) -> str:
        """Why it cannot compute a scenario; "" where it can."""
        return top_left_mask(scenario)

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """Its one way, on views: nothing is copied, for that would be timed."""
        q, k, v = (tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v))
        grouped = scenario.heads != scenario.kv_heads

        def attend() -> torch.Tensor:
            o = scaled_dot_product_attention(q, k, v, is_causal=scenario.causal, enable_gqa=grouped)
            return o.transpose(1, 2)

        return {"default": attend}


def top_left_mask(scenario: Scenario) -> str:
    """Why torch's causal attention is another one for this scenario; "" where it is the same."""
    if scenario.causal and scenario.seqlen_q != scenario.seqlen_k:
        return "torch aligns the causal mask top-left, not bottom-right, where the lengths differ"
    return ""
