"""TMA descriptors, encoded by the driver, as the 128-byte values that kernels take."""

import ctypes
from typing import cast

import numpy as np
import torch
from cuda.bindings import driver

from fitness.faults import invalid
from fitness.parameters import TENSOR_MAP_DTYPE
from fitness.plan import TensorMapPlan

_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
_ELEMENTS = {
    torch.bfloat16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    torch.float16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
}


def encode_tensor_map(plan: TensorMapPlan | None, tensor: torch.Tensor | None) -> np.void:
    """The descriptor of `tensor` `[batch, seqlen, heads, head_dim]`; all zeros for a slot that is left out.

    Raises CandidateFault(INVALID) where the driver refuses box or swizzle.
    """
    record = np.zeros((), dtype=TENSOR_MAP_DTYPE)
    if plan is None or tensor is None:
        return cast(np.void, record[()])
    batch, seqlen, heads, head_dim = tensor.shape
    row, element = heads * head_dim, tensor.element_size()
    error, encoded = driver.cuTensorMapEncodeTiled(
        _ELEMENTS[tensor.dtype],
        4,
        tensor.data_ptr(),
        [driver.cuuint64_t(size) for size in (head_dim, heads, seqlen, batch)],
        [driver.cuuint64_t(stride * element) for stride in (head_dim, row, seqlen * row)],
        [driver.cuuint32_t(size) for size in plan.box],
        [driver.cuuint32_t(1)] * 4,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _SWIZZLES[plan.swizzle],
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise invalid(
            f"tensor map of {plan.tensor}: the driver refuses box {list(plan.box)} with a swizzle of {plan.swizzle} "
            f"bytes on a tensor of {[head_dim, heads, seqlen, batch]} ({error.name})"
        )
    record["opaque"] = np.frombuffer(ctypes.string_at(encoded.getPtr(), 128), dtype=np.uint64)
    return cast(np.void, record[()])
