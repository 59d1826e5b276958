"""What a baseline says where there is no GPU: that, and not which package to install."""

import pytest
import torch

from fitness.baselines.selection import build_baseline
from fitness.faults import BaselineUnavailableError


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fa3", "torch finds no GPU; choose baseline=sdpa"),
        ("fa4", "it needs a GPU of sm_90 or newer; choose baseline=sdpa"),
        ("cudnn", "torch finds no GPU or no cuDNN; choose baseline=sdpa"),
    ],
)
def test_the_device_is_looked_for_before_the_package(name: str, said: str) -> None:
    with pytest.raises(BaselineUnavailableError, match=f"^baseline {name}: {said}$"):
        build_baseline(name)
