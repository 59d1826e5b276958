"""From the words on a command line to a checked Config, or to one clear line about what is wrong with them."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evo.config import AnswererKind, BackendKind, Config, EvolutionKind, SelectionKind
from evo.data import conf_folder
from evo.pool_config import PoolKind

HYDRA_VERSION = "1.3"  # the version of Hydra whose defaults we rely on
_LEAST: Mapping[str, float] = MappingProxyType(
    {
        "evolution.mu": 1,
        "evolution.lambda_": 1,
        "evolution.elites": 0,
        "evolution.hall_of_fame": 1,
        "evolution.keep_checkpoints": 1,
        "evolution.crossover_probability": 0,
        "selection.tournament_size": 1,
        "stop.target_geomean": 0,
        "stop.evaluations": 1,
        "stop.generations": 0,
        "stop.wall_time_s": 0,
        "stop.spend_usd": 0,
        "stop.stall_evaluations": 1,
        "stop.barren_generations": 1,
        "backend.device": 0,
        "backend.threads": 1,
        "pool.workers": 1,
        "pool.start_s": 1,
        "backend.compile_processes": 0,
        "backend.compile_timeout_s": 1,
        "judge.repeats": 1,
        "judge.warmups": 0,
        "judge.precision": 0,
        "suite.long_seqlen_k": 1,
        "suite.repeats": 1,
        "suite.least_repeats": 1,
        "judge.call_timeout_s": 0.1,
        "answerer.max_tokens": 1,
        "answerer.timeout_s": 1,
        "answerer.max_retries": 0,
        "answerer.concurrency": 1,
        "answerer.tool_calls": 1,
        "answerer.usd_per_million_prompt_tokens": 0,
        "answerer.usd_per_million_completion_tokens": 0,
        "style.budget_tokens": 1000,
        "single_shot.questions": 1,
        "questions.stall_after": 1,
        "questions.noise": 0,
        "questions.big_win": 1,
        "rng_seed": 0,
    }
)


class ConfigError(Exception):
    """The command line or a configuration file asks for something that cannot be."""


def register_schema() -> None:
    """Tell Hydra the types; conf/config.yaml names them first in its defaults."""
    ConfigStore.instance().store(name="schema", node=Config)


def compose_config(overrides: Sequence[str]) -> Config:
    """The configuration that the overrides make, checked. Raises ConfigError."""
    register_schema()
    for override in parse_overrides(overrides):
        _check_key(override)
    try:
        with _aside_from_a_job(), initialize_config_dir(config_dir=str(conf_folder()), version_base=HYDRA_VERSION):
            composed = compose(config_name="config", overrides=list(overrides))
        return to_config(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from error


@contextmanager
def _aside_from_a_job() -> Iterator[None]:
    """Within it, Hydra can be initialised where it runs a job of its own."""
    instance = GlobalHydra.instance()
    running, instance.hydra = instance.hydra, None
    try:
        yield
    finally:
        instance.hydra = running


def to_config(composed: DictConfig) -> Config:
    """Plain dataclasses from Hydra's configuration, checked. Raises ConfigError."""
    try:
        config = cast(Config, OmegaConf.to_object(composed))
    except OmegaConfBaseException as error:
        raise ConfigError(_one_line(error)) from error
    check_config(config)
    return config


def quoted(path: Path) -> str:
    """The path as a value that Hydra reads back as it stands."""
    return "'" + str(path).replace("\\'", "\\\\'").replace("'", "\\'") + "'"


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """The overrides as Hydra reads them. Raises ConfigError."""
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(f"{_one_line(error)}; quote values that hold = # ~ , or (, as in 'name=\"a=b\"'") from error


def each_variant(overrides: Sequence[str]) -> Iterator[list[str]]:
    """For a sweep: override lists that together name every swept value at least once, to be checked beforehand."""
    choices: list[list[str]] = []
    for override in parse_overrides(overrides):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([str(override.input_line)])
    for row in range(max((len(values) for values in choices), default=1)):
        yield [values[min(row, len(values) - 1)] for values in choices]


def experiments_sweep(overrides: Sequence[str]) -> dict[str, str]:
    """What the named experiment sweeps over by itself (hydra.sweeper.params), by key. Raises ConfigError."""
    if all(override.get_key_element() != "experiment" for override in parse_overrides(overrides)):
        return {}
    words = next(each_variant(overrides))
    compose_config(words)
    try:
        with initialize_config_dir(config_dir=str(conf_folder()), version_base=HYDRA_VERSION):
            composed = compose(config_name="config", overrides=words, return_hydra_config=True)
        return {str(key): str(values) for key, values in (composed.hydra.sweeper.params or {}).items()}
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from error


def check_config(config: Config) -> None:
    """Raise ConfigError for a value out of range: which option, what came, what was expected."""
    _check_numbers(config)
    _check_choices(config)
    _check_judging(config)
    _check_single_shot(config)
    if config.seeds == []:
        raise ConfigError("seeds=[]: expected at least one seed kernel, as in seeds=[tiled]")
    if config.name is not None and (config.name in ("", ".", "..", "None") or "/" in config.name):
        raise ConfigError(f"name={config.name!r}: expected a folder's name, without a slash; null names it by the time")


def _check_numbers(config: Config) -> None:
    for key, value in _walk(config, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}={value}: expected a finite number")
        if isinstance(value, int | float) and value < _LEAST.get(key, -math.inf):
            raise ConfigError(f"{key}={value}: expected at least {_LEAST[key]:g}")
    share = config.evolution.crossover_probability
    if share > 1:
        raise ConfigError(f"evolution.crossover_probability={share}: expected at most 1")


def _check_choices(config: Config) -> None:
    """What a choice needs besides, and what does not go with it."""
    answerer = config.answerer
    needed = [
        ("backend.table", config.backend.kind is BackendKind.recorded, config.backend.table),
        ("answerer.model", answerer.kind is AnswererKind.openai, answerer.model),
        ("answerer.replay_from", answerer.kind is AnswererKind.replay, answerer.replay_from),
    ]
    for key, applies, value in needed:
        if applies and not value:
            raise ConfigError(f"{key} is not set: this choice needs it, as in {key}=…")
    if config.evolution.kind is EvolutionKind.steady:
        _check_steady(config)
    _check_gpus(config)
    if answerer.tools and answerer.kind is not AnswererKind.openai:
        raise ConfigError(f"answerer.tools=true: {answerer.kind.value} calls none; expected answerer=openai")


def _check_gpus(config: Config) -> None:
    """At most one option says which GPUs measure."""
    devices = config.pool.devices
    given = {
        "backend.claim": bool(config.backend.claim),
        "backend.device": config.backend.device is not None,
        "pool.devices": devices is not None,
        "pool=ray": config.pool.kind is PoolKind.ray,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise ConfigError(f"{named[0]} and {named[1]}: both say which GPUs; leave one of them out")
    if devices is not None and (not devices or len(set(devices)) < len(devices) or min(devices) < 0):
        raise ConfigError(f"pool.devices={devices}: expected one index or more from 0 on, each once")


def _check_steady(config: Config) -> None:
    """A steady search has no generations that files could be exchanged for, and no moment when nothing is timed."""
    refused = {
        "answerer=mailbox": config.answerer.kind is AnswererKind.mailbox,
        "answerer.tools=true": config.answerer.tools,
        "single_shot.questions": config.single_shot.questions is not None,
    }
    for words in (word for word, given in refused.items() if given):
        raise ConfigError(f"evolution=steady: {words} needs generations; use evolution=generational")


def _check_single_shot(config: Config) -> None:
    styles = [style.value for style in config.single_shot.styles]
    if len(styles) < 2 or len(set(styles)) < len(styles):
        raise ConfigError(f"single_shot.styles=[{','.join(styles)}]: expected two or more styles, each once")


def _check_judging(config: Config) -> None:
    if config.judge.precision is not None and config.judge.precision >= 1:
        raise ConfigError(f"judge.precision={config.judge.precision}: expected a share below 1, as in 0.01")
    if config.suite.distributions == []:
        raise ConfigError("suite.distributions=[]: expected at least one; null takes all")
    if config.judge.race and config.selection.kind is SelectionKind.lexicase:
        raise ConfigError(
            "judge.race=true: a candidate with a low geometric mean may be the best on one scenario, which is what "
            "selection=lexicase keeps; leave one of the two out"
        )


def _check_key(override: Override) -> None:
    key = str(override.key_or_group)
    if key == "hydra" or key.startswith(("hydra.", "hydra/")) or override.is_force_add():
        return
    known = option_names()
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`evo evolve --cfg job` lists them"
        raise ConfigError(f"{key} is no option; {hint}")
    group = conf_folder() / key
    if group.is_dir() and not override.is_sweep_override():
        choices = sorted(path.stem for path in group.glob("*.yaml"))
        chosen = override.value()
        if str(chosen) not in choices:
            near = difflib.get_close_matches(str(chosen), choices, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"{key}={chosen}: {hint}there is {', '.join(choices)}")


def option_names() -> list[str]:
    """Every key that the command line knows, groups among them."""
    groups = [path.name for path in conf_folder().iterdir() if path.is_dir()]
    return [*groups, *(key for key, _ in _walk(Config(), ""))]


def _walk(node: object, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in fields(cast(Any, node)):
        key, value = f"{prefix}{item.name}", getattr(node, item.name)
        yield key, value
        if is_dataclass(value):
            yield from _walk(value, f"{key}.")


def _one_line(error: Exception) -> str:
    """What Hydra or OmegaConf said, in one line, with the key that it is about."""
    said: BaseException = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    key = getattr(said, "full_key", None)
    line = lines[0] if lines else type(said).__name__
    if line.startswith("Ambiguous value"):
        line += "; to sweep over the values, add -m"
    return f"{key}: {line}" if key and key not in line else line
