"""The roof of a device."""

import pytest
import torch

from fitness.roof import Roof, measure_roof
from fitness.scenario import Scenario


def scenario(**sizes: int | bool) -> Scenario:
    shape = {"batch": 4, "heads": 16, "kv_heads": 16, "seqlen_q": 4096, "seqlen_k": 4096, "head_dim": 128}
    return Scenario(**{**shape, "causal": False, **sizes})


def test_long_sequences_are_bound_by_operations_and_decoding_by_bytes() -> None:
    roof = Roof(tflops=790, gb_per_s=4300)
    assert roof.milliseconds(scenario()) == pytest.approx(0.696, abs=5e-4)  # 4 · 4 · 16 · 4096² · 128 operations
    decode = scenario(batch=64, heads=32, kv_heads=8, seqlen_q=1, seqlen_k=8192)
    assert roof.milliseconds(decode) == pytest.approx(0.4995, abs=5e-4)  # 2.15 GB of keys and values


def test_a_causal_mask_halves_the_operations() -> None:
    roof = Roof(tflops=1.0, gb_per_s=1e9)
    share = roof.milliseconds(scenario(causal=True)) / roof.milliseconds(scenario())
    assert share == pytest.approx(4097 / 8192)


def test_the_roof_of_this_processor_is_of_a_processors_size() -> None:
    roof = measure_roof(torch.device("cpu"))
    assert 1e-3 < roof.tflops < 100
    assert 0.1 < roof.gb_per_s < 10_000
