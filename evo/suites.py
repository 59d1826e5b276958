"""From conf/suite to the suite that a kernel is judged on."""

import yaml
from omegaconf import OmegaConf

from evo.config import Config, ScenarioConfig, SuiteConfig
from evo.data import conf_folder
from evo.settings import ConfigError
from fitness.scenario import ElementType, Scenario, Suite, edge_scenarios


def load_suite(name: str) -> Suite:
    """The shipped suite of that name, for when the configuration says "auto"."""
    return to_suite(load_suite_config(name))


def load_suite_config(name: str) -> SuiteConfig:
    """What conf/suite says under that name."""
    content = yaml.safe_load((conf_folder() / "suite" / f"{name}.yaml").read_text(encoding="utf-8"))
    merged = OmegaConf.merge(OmegaConf.structured(SuiteConfig), content)
    config = OmegaConf.to_object(merged)
    if not isinstance(config, SuiteConfig):
        raise TypeError(f"conf/suite/{name}.yaml gave {type(config).__name__}; expected SuiteConfig")
    return config


def require_timed(config: Config) -> None:
    """Raise ConfigError for a suite that is checked and never timed: a search has nothing to select by there."""
    if not config.suite.timed:
        raise ConfigError(
            f"suite={config.suite.name}: nothing is timed there, so no kernel is better than another; search on "
            f"another suite, and check the best by evo verify KERNEL suite={config.suite.name}"
        )


def to_suite(config: SuiteConfig) -> Suite:
    """The suite of a configuration. Raises ConfigError for shapes that cannot be."""
    try:
        scenarios = tuple(_scenario(scenario) for scenario in config.scenarios)
        edges = edge_scenarios(scenarios) if config.edges else ()
        if not config.timed:
            return Suite(name=config.name, scenarios=(), edges=(*scenarios, *edges))
        return Suite(name=config.name, scenarios=scenarios, edges=edges)
    except ValueError as error:
        raise ConfigError(f"suite {config.name}: {error}") from error


def _scenario(config: ScenarioConfig) -> Scenario:
    return Scenario(
        batch=config.batch,
        heads=config.heads,
        kv_heads=config.heads if config.kv_heads is None else config.kv_heads,
        seqlen_q=config.seqlen_q,
        seqlen_k=config.seqlen_q if config.seqlen_k is None else config.seqlen_k,
        head_dim=config.head_dim,
        causal=config.causal,
        element_type=ElementType(config.element_type.value),
    )
