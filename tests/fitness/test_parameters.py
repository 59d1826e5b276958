"""The NumPy mirror of the contract's header, held against the header's own text."""

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from fitness.parameters import PARAMETERS_DTYPE, TENSOR_MAP_DTYPE, pack_parameters
from fitness.scenario import Scenario

HEADER = (Path(__file__).parents[2] / "kernels/include/attention.cuh").read_text()
SCENARIO = Scenario(batch=2, heads=8, kv_heads=4, seqlen_q=100, seqlen_k=300, head_dim=64, causal=True)


def fields_of(struct: str) -> list[tuple[str, str, int]]:
    """(type, name, count) of each field, as the header declares them."""
    body = re.search(rf"struct (?:alignas\(64\) )?{struct} {{(.*?)}};", HEADER, re.DOTALL)[1]
    declarations = re.findall(r"^\s*([\w ]+\*?)\s+(\w+)(?:\[(\d+)\])?;", body, re.MULTILINE)
    return [(kind.strip(), name, int(count or 1)) for kind, name, count in declarations]


def c_structure() -> type[ctypes.Structure]:
    types = {"int": ctypes.c_int32, "float": ctypes.c_float}
    fields = []
    for kind, name, count in fields_of("AttentionParams"):
        c_type = ctypes.c_uint64 if kind.endswith("*") else types[kind]
        fields.append((name, c_type if count == 1 else c_type * count))
    return type("AttentionParams", (ctypes.Structure,), {"_fields_": fields})


def packed(**changes):
    arguments = {"q": 1, "k": 2, "v": 3, "o": 4, "lse": 2**64 - 1, "workspaces": [7, 0, 9]} | changes
    return pack_parameters(**arguments, scenario=SCENARIO, softmax_scale=0.125)


def test_the_mirror_has_the_headers_fields_at_their_offsets():
    mirrored = c_structure()
    assert ctypes.sizeof(mirrored) == PARAMETERS_DTYPE.itemsize == 104
    assert list(PARAMETERS_DTYPE.names) == [name for name, _ in mirrored._fields_]
    for name in PARAMETERS_DTYPE.names:
        field = getattr(mirrored, name)
        assert PARAMETERS_DTYPE.fields[name][1] == field.offset, name
        assert PARAMETERS_DTYPE.fields[name][0].itemsize == field.size, name


def test_the_header_asserts_the_same_sizes():
    assert "sizeof(AttentionParams) == 104" in HEADER
    assert "sizeof(TensorMap) == 128 && alignof(TensorMap) == 64" in HEADER


def test_a_tensor_map_is_128_bytes():
    assert fields_of("TensorMap") == [("unsigned long long", "opaque", 16)]
    assert TENSOR_MAP_DTYPE.itemsize == 128
    assert TENSOR_MAP_DTYPE["opaque"].shape == (16,)


def test_values_arrive_where_c_reads_them():
    scalar = packed()
    assert isinstance(scalar, np.void)
    read = c_structure().from_buffer_copy(scalar.tobytes())
    assert (read.q, read.k, read.v, read.o, read.lse) == (1, 2, 3, 4, 2**64 - 1)
    assert list(read.workspace) == [7, 0, 9, 0]
    assert (read.batch, read.heads, read.kv_heads) == (2, 8, 4)
    assert (read.seqlen_q, read.seqlen_k, read.head_dim) == (100, 300, 64)
    assert (read.softmax_scale, read.causal) == (0.125, 1)


def test_packing_twice_gives_two_records():
    first, second = packed(), packed(q=99)
    assert (first["q"], second["q"]) == (1, 99)


@pytest.mark.parametrize("pointer", [-1, 2**64])
def test_an_address_out_of_range(pointer):
    with pytest.raises(OverflowError):
        packed(q=pointer)


def test_more_workspaces_than_fit():
    with pytest.raises(ValueError, match="5 workspaces; at most 4 fit"):
        packed(workspaces=[1, 2, 3, 4, 5])


def test_a_size_beyond_32_bits():
    wide = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=2**31, seqlen_k=1, head_dim=64, causal=False)
    with pytest.raises(OverflowError):
        pack_parameters(q=1, k=1, v=1, o=1, lse=1, workspaces=[], scenario=wide, softmax_scale=1.0)
