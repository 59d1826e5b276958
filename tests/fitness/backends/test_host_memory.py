"""The host's guarded memory, and how much the processor keeps near it."""

import pytest
import torch

from fitness.backends.host import last_level_cache_bytes
from fitness.backends.host_memory import GuardedBuffer
from fitness.backends.nan_words import nan_generator


@pytest.mark.parametrize("size", [2, 16, 60, 4096, 5000])
def test_a_tensor_ends_at_the_guard_page_but_for_its_alignment(size):
    buffer = GuardedBuffer("o", size)

    assert buffer.address % 16 == 0
    assert (buffer.address + size + 15) // 16 * 16 % 4096 == 0
    assert buffer.violation() == ""


def test_a_buffers_tensor_is_the_memory_itself():
    buffer = GuardedBuffer("o", 24)
    tensor = buffer.tensor(torch.bfloat16, (3, 4))
    buffer.poison(nan_generator(torch.device("cpu")))
    assert tensor.isnan().all()
    tensor.fill_(1.0)
    buffer.clear()

    assert tensor.eq(0).all()
    assert tensor.data_ptr() == buffer.address
    assert buffer.violation() == ""


def test_the_largest_cache_is_the_last(tmp_path):
    for index, size in enumerate(("48K", "1024K", "32768K")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n", encoding="ascii")

    assert last_level_cache_bytes(tmp_path) == 32 << 20
    assert last_level_cache_bytes(tmp_path / "nothing") == 32 << 20
