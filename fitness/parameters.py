"""The structures that a kernel is called with, as NumPy lays them out: the mirror of kernels/include/attention.cuh."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from fitness.manifest import MAX_WORKSPACES
from fitness.scenario import Scenario

PARAMETERS_DTYPE = np.dtype(
    {
        "names": [
            "q", "k", "v", "o", "lse", "workspace",
            "batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "softmax_scale", "causal",
        ],
        "formats": [
            "<u8", "<u8", "<u8", "<u8", "<u8", ("<u8", (MAX_WORKSPACES,)),
            "<i4", "<i4", "<i4", "<i4", "<i4", "<i4", "<f4", "<i4",
        ],
        "offsets": [0, 8, 16, 24, 32, 40, 72, 76, 80, 84, 88, 92, 96, 100],
        "itemsize": 104,
    }
)  # fmt: skip
TENSOR_MAP_DTYPE = np.dtype({"names": ["opaque"], "formats": [("<u8", (16,))], "offsets": [0], "itemsize": 128})


def pack_parameters(
    *, q: int, k: int, v: int, o: int, lse: int, workspaces: Sequence[int], scenario: Scenario, softmax_scale: float
) -> np.void:
    """AttentionParams as one structured scalar: CuPy passes it by value, `tobytes()` gives ctypes its 104 bytes.

    Pointers are addresses; a workspace that a scenario leaves out is 0, as are those beyond the last.
    Raises ValueError for more than four workspaces, OverflowError for a size beyond 32 bits or an address beyond 64.
    """
    if len(workspaces) > MAX_WORKSPACES:
        raise ValueError(f"{len(workspaces)} workspaces; at most {MAX_WORKSPACES} fit")
    record = np.zeros((), dtype=PARAMETERS_DTYPE)
    pointers = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
    sizes = {name: size for name, size in scenario.fields().items() if name != "bf16"}
    for name, value in (pointers | sizes).items():
        record[name] = value
    record["workspace"][: len(workspaces)] = workspaces
    record["softmax_scale"] = softmax_scale
    return cast(np.void, record[()])
