"""The packed parameters, read back from where a kernel would be handed them."""

import ctypes

import numpy as np
import torch

from fitness.parameters import PARAMETERS_DTYPE, pack_parameters
from fitness.runtime.arguments import Parameters
from fitness.scenario import Scenario

SHAPE = Scenario(batch=3, heads=4, kv_heads=2, seqlen_q=5, seqlen_k=7, head_dim=64, causal=True)


def test_each_write_leaves_what_packing_anew_would_have_given():
    parameters = Parameters(SHAPE)
    for scale, left_out in ((0.125, 1), (0.25, 0)):
        tensors = [torch.empty(64) for _ in range(5)]
        workspaces = [torch.empty(8), torch.empty(8)]
        workspaces[left_out] = None
        parameters.write(tensors, workspaces, scale)
        named = dict(zip(("q", "k", "v", "o", "lse"), (tensor.data_ptr() for tensor in tensors), strict=True))
        places = [0 if each is None else each.data_ptr() for each in workspaces]
        expected = pack_parameters(**named, workspaces=places, scenario=SHAPE, softmax_scale=scale)
        written = np.frombuffer(ctypes.string_at(parameters.address, 104), dtype=PARAMETERS_DTYPE)[0]
        assert written == expected
