"""From conf/suite to suites."""

from dataclasses import replace
from typing import Any

import pytest

from evo.config import ElementKind, ScenarioConfig, SuiteConfig
from evo.settings import ConfigError, compose_config
from evo.suites import load_suite, to_suite
from fitness.scenario import ElementType, edge_scenarios

SHAPE = ScenarioConfig(batch=2, heads=8, kv_heads=2, seqlen_q=64, seqlen_k=96, head_dim=128, causal=True)


def test_a_scenario_is_read_field_by_field() -> None:
    [scenario] = to_suite(SuiteConfig(name="one", edges=False, scenarios=[SHAPE])).scenarios
    assert scenario.name == "b2 h8/2 s64x96 d128 causal bf16"


def test_what_is_left_out_follows_from_the_rest() -> None:
    shape = replace(SHAPE, kv_heads=None, seqlen_k=None, element_type=ElementKind.fp16)
    [scenario] = to_suite(SuiteConfig(name="one", edges=False, scenarios=[shape])).scenarios
    assert (scenario.kv_heads, scenario.seqlen_k, scenario.element_type) == (8, 64, ElementType.FP16)


def test_edges_come_with_the_suites_head_dims() -> None:
    suite = to_suite(SuiteConfig(name="one", edges=True, scenarios=[SHAPE]))
    assert suite.edges == edge_scenarios(suite.scenarios)
    assert to_suite(SuiteConfig(name="one", edges=False, scenarios=[SHAPE])).edges == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_heads": 3}, "8 heads do not divide into 3 kv_heads"),
        ({"batch": 0}, "batch is 0"),
        ({"head_dim": -64}, "head_dim is -64"),
    ],
)
def test_shapes_that_cannot_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"suite odd: .*{said}"):
        to_suite(SuiteConfig(name="odd", scenarios=[replace(SHAPE, **change)]))


def test_the_same_scenario_twice() -> None:
    with pytest.raises(ConfigError, match="listed twice: b2 h8/2 s64x96 d128 causal bf16"):
        to_suite(SuiteConfig(name="odd", scenarios=[SHAPE, SHAPE]))


@pytest.mark.parametrize("name", ["smoke", "core26", "fa3_36", "avo_24"])
def test_a_shipped_suite_is_the_same_by_either_way(name: str) -> None:
    assert load_suite(name) == to_suite(compose_config([f"suite={name}"]).suite)


def test_smoke_has_both_element_types_and_unequal_lengths() -> None:
    scenarios = load_suite("smoke").scenarios
    assert {scenario.element_type for scenario in scenarios} == set(ElementType)
    assert any(scenario.seqlen_q != scenario.seqlen_k for scenario in scenarios)
