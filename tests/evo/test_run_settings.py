"""Which settings may change on resume, and how the others are told of."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_search import small_config, small_settled

from evo.config import Config
from evo.run_settings import fingerprint, fixed_settings, require_same_settings
from evo.settings import ConfigError
from population.archive import Archive, create_archive
from population.atomic_file import parse_json, strict_json
from population.run_folder import create_run_folder


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with create_archive(create_run_folder(tmp_path, "run")) as made:
        yield made


def settings_of(config: Config) -> dict[str, Any]:
    return fixed_settings(config, small_settled(config))


def within(group: str, **values: object) -> Callable[[Config], Config]:
    return lambda config: replace(config, **{group: replace(getattr(config, group), **values)})


FREE = [
    lambda config: replace(config, name="another", runs="elsewhere", resume="run"),
    within("stop", evaluations=9, spend_usd=1.0),
    within("backend", cache="/elsewhere", compile_processes=2, run_model_code=True),
    within("evolution", keep_checkpoints=9),
    within("answerer", concurrency=1, timeout_s=5.0, max_retries=0, base_url="http://localhost:8000/v1"),
]
FIXED = [
    (lambda config: replace(config, rng_seed=5), "rng_seed was 0, now 5"),
    (lambda config: replace(config, seeds=["tiled"]), "now ['tiled']"),
    (within("evolution", mu=9), "evolution.mu was 3, now 9"),
    (within("selection", tournament_size=3), "selection.tournament_size was 2, now 3"),
    (within("judge", repeats=50), "judge.repeats was None, now 50"),
    (within("questions", noise=0.5), "questions.noise was 0.01, now 0.5"),
    (within("suite", name="other"), "suite was 'tiny', now 'other'"),
    (within("suite", edges=True), "suite.scenarios was"),
    (within("answerer", model="m-2"), "answerer.model was None, now 'm-2'"),
    (within("backend", threads=2), "backend.threads was 1, now 2"),
]


@pytest.mark.parametrize("change", FREE)
def test_free_settings_may_change(archive: Archive, change: Callable[[Config], Config]) -> None:
    require_same_settings(archive, settings_of(small_config()))
    changed = settings_of(change(small_config()))
    require_same_settings(archive, changed)
    assert fingerprint(changed) == fingerprint(settings_of(small_config()))


@pytest.mark.parametrize(("change", "said"), FIXED)
def test_any_other_that_differs_is_named(archive: Archive, change: Callable[[Config], Config], said: str) -> None:
    require_same_settings(archive, settings_of(small_config()))
    changed = settings_of(change(small_config()))
    with pytest.raises(ConfigError) as error:
        require_same_settings(archive, changed)
    assert str(error.value).startswith("resume: this run began with other settings: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert fingerprint(changed) != fingerprint(settings_of(small_config()))


def test_all_that_differ_are_named_at_once(archive: Archive) -> None:
    require_same_settings(archive, settings_of(small_config()))
    changed = replace(within("evolution", mu=9)(small_config()), rng_seed=5)
    with pytest.raises(ConfigError, match=r"evolution\.mu was 3, now 9; rng_seed was 0, now 5; start a new run"):
        require_same_settings(archive, settings_of(changed))


def test_settings_are_plain_json_and_hold_what_was_settled() -> None:
    settings = settings_of(small_config())
    assert parse_json(strict_json(settings)) == settings
    assert (settings["backend"], settings["device"], settings["baseline"]) == ("recorded", "test device", "sdpa")
    assert len(settings["suite.scenarios"]) == 2
    assert not [key for key in settings if "key" in key]  # not even the name of the variable that holds one
