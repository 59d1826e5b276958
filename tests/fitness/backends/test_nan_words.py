"""What a candidate's memory holds before a call: NaN in every type, and other bits each time."""

import pytest
import torch

from fitness.backends.nan_words import fill_with_nans, nan_generator

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [0, 1, 2, 4096, 4099])
def test_it_is_nan_in_every_element_type(size):
    memory = torch.zeros(size, dtype=torch.uint8)
    fill_with_nans(memory, nan_generator(CPU))
    for element in (torch.bfloat16, torch.float16, torch.float32):
        whole = size // element.itemsize * element.itemsize
        assert memory[:whole].view(element).isnan().all()
    assert size % 2 == 0 or memory[-1] == 0xFF


def test_nobody_can_foretell_it():
    generator = nan_generator(CPU)
    first, second, another = (torch.zeros(4096, dtype=torch.uint8) for _ in range(3))
    fill_with_nans(first, generator)
    fill_with_nans(second, generator)
    fill_with_nans(another, nan_generator(CPU))
    words = first.view(torch.int16)
    assert len(set(words.tolist())) > 100  # of 128
    assert 0.4 < (words < 0).float().mean() < 0.6  # none knows a sign, either
    assert not torch.equal(first, second)
    assert not torch.equal(first, another)
