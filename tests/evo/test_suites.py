"""From conf/suite to suites."""

from dataclasses import replace
from typing import Any

import pytest

from evo.config import BackendKind, Config, ElementKind, ScenarioConfig, SuiteConfig
from evo.settings import ConfigError, compose_config
from evo.suites import load_suite, load_suite_config, require_timed, to_suite
from evo.workbench import judge_settings
from fitness.inputs import Distribution
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


@pytest.mark.parametrize("name", ["smoke", "core8", "core26", "fa3_36", "avo_24", "production", "edge", "full182"])
def test_a_shipped_suite_is_the_same_by_either_way(name: str) -> None:
    assert load_suite(name) == to_suite(compose_config([f"suite={name}"]).suite)


def test_smoke_has_both_element_types_and_unequal_lengths() -> None:
    scenarios = load_suite("smoke").scenarios
    assert {scenario.element_type for scenario in scenarios} == set(ElementType)
    assert any(scenario.seqlen_q != scenario.seqlen_k for scenario in scenarios)


@pytest.mark.parametrize(
    ("name", "timed"),
    [("core8", 8), ("core26", 26), ("fa3_36", 36), ("avo_24", 24), ("production", 86), ("full182", 182), ("edge", 0)],
)
def test_a_shipped_suite_has_its_number_of_scenarios_each_once_and_with_work(name: str, timed: int) -> None:
    suite = load_suite(name)
    assert len(suite.scenarios) == timed
    shapes = suite.scenarios or suite.edges
    assert len({scenario.name for scenario in shapes}) == len(shapes)
    assert all(scenario.flops > 0 and scenario.bytes_moved > 0 for scenario in suite.scenarios)


def test_full182_is_the_published_benchmarks_and_production() -> None:
    full = {scenario.name for scenario in load_suite("full182").scenarios}
    parts = {name: {each.name for each in load_suite(name).scenarios} for name in ("fa3_36", "avo_24", "production")}
    fp16 = {name.replace("bf16", "fp16") for name in parts["fa3_36"]}
    assert full == parts["fa3_36"] | fp16 | parts["avo_24"] | parts["production"]
    assert len(full) == 36 + 36 + 24 + 86


def test_edge_has_lengths_of_1_to_4224_unequal_ones_and_five_head_dims() -> None:
    shapes = load_suite("edge").edges
    assert len(shapes) == 91
    lengths = {length for shape in shapes for length in (shape.seqlen_q, shape.seqlen_k)}
    assert (min(lengths), max(lengths)) == (1, 4224)
    assert {shape.head_dim for shape in shapes} == {64, 96, 128, 192, 256}
    assert any(shape.seqlen_q > shape.seqlen_k for shape in shapes)
    assert any(shape.seqlen_q < shape.seqlen_k for shape in shapes)


def test_nothing_can_be_searched_on_a_suite_that_is_not_timed() -> None:
    with pytest.raises(ConfigError, match="suite=edge: nothing is timed there"):
        require_timed(Config(suite=load_suite_config("edge")))
    require_timed(Config(suite=load_suite_config("core26")))


def test_a_suite_says_how_it_is_measured_and_the_command_line_is_above_it() -> None:
    full = judge_settings(compose_config(["suite=full182"]), BackendKind.cuda)
    assert full.distributions == (Distribution.NORMAL, Distribution.SHIFTED, Distribution.LARGE)
    assert (full.repeats, full.least_repeats, full.long_seqlen_k) == (7, 3, 4096)
    usual = judge_settings(compose_config(["suite=core26"]), BackendKind.cuda)
    assert usual.distributions == tuple(Distribution)
    own = judge_settings(compose_config(["suite=full182", "judge.repeats=2", "judge.precision=0"]), BackendKind.cuda)
    assert (own.repeats, own.least_repeats, own.precision) == (2, 2, 0.0)
