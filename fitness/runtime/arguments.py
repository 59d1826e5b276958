"""AttentionParams of one shape, packed once; a call writes its addresses over those of the call before."""

import ctypes
from collections.abc import Sequence

import torch

from fitness.manifest import MAX_WORKSPACES
from fitness.parameters import PARAMETERS_DTYPE, pack_parameters
from fitness.scenario import Scenario

_POINTERS = 5 + MAX_WORKSPACES  # q, k, v, o, lse and the workspaces come first
_SCALE_OFFSET: int = PARAMETERS_DTYPE.fields["softmax_scale"][1]  # type: ignore[index]  # it has fields


class Parameters:
    """The 104 bytes in place. One writer at a time."""

    def __init__(self, scenario: Scenario) -> None:
        packed = pack_parameters(q=0, k=0, v=0, o=0, lse=0, workspaces=(), scenario=scenario, softmax_scale=0.0)
        self._bytes = bytearray(packed.tobytes())
        self._pointers = (ctypes.c_uint64 * _POINTERS).from_buffer(self._bytes)
        self._scale = ctypes.c_float.from_buffer(self._bytes, _SCALE_OFFSET)

    @property
    def address(self) -> int:
        """Where they lie, for as long as this object does."""
        return ctypes.addressof(self._pointers)

    def write(self, tensors: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor | None], scale: float) -> None:
        """Put in q, k, v, o and lse, the workspaces (None: left out) and the factor of the softmax."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        addresses += [0 if each is None else each.data_ptr() for each in workspaces]
        self._pointers[: len(addresses)] = addresses  # type: ignore[assignment]  # ctypes takes whole numbers
        self._scale.value = scale
