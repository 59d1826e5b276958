"""What is refused before a run begins, since no candidate of it could be judged or could differ from its seed."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_search import MACHINE, SEED, write_table

from evo.choices import settle
from evo.config import Config
from evo.data import seed_folder
from evo.preflight import refuse_pointless
from evo.settings import ConfigError, compose_config
from fitness.manifest import with_knobs


def checked(*overrides: str, begun: bool = False) -> None:
    config = compose_config(["backend=host", *overrides])
    settled = settle(config, MACHINE)
    refuse_pointless(_with_seeds(config, settled.seeds), settled, begun=begun)


def _with_seeds(config: Config, seeds: tuple[str, ...]) -> Config:
    return replace(config, seeds=list(seeds))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.cu"
    path.write_text((seed_folder() / "tiled.cu").read_text(encoding="utf-8") + "// mine\n", encoding="utf-8")
    return path


def test_the_shipped_seed_and_one_with_other_knob_values_pass(tmp_path: Path) -> None:
    checked()
    turned = tmp_path / "turned.cu"
    turned.write_text(with_knobs((seed_folder() / "tiled.cu").read_text(encoding="utf-8"), {"BLOCK_M": 32}), "utf-8")
    checked(f"seeds=[{turned}]")


def test_a_seed_without_knobs_gives_the_offline_answerer_nothing_to_do() -> None:
    with pytest.raises(ConfigError, match=r"seeds=\[naive\]: the offline answerer turns knobs, and no seed has one"):
        checked("seeds=[naive]")
    checked("seeds=[naive,tiled]")


def test_a_seed_of_the_users_own_runs_on_the_host_by_the_users_word_alone(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"own\.cu would run natively on the host backend.*run_model_code=true"):
        checked(f"seeds=[{own}]")
    checked(f"seeds=[{own}]", "backend.run_model_code=true")


def test_a_table_that_holds_no_seed_is_refused_with_the_word_to_say(tmp_path: Path) -> None:
    table, seed = write_table(tmp_path / "table.jsonl"), tmp_path / "tiled.cu"
    seed.write_text((seed_folder() / "tiled.cu").read_text(encoding="utf-8"), encoding="utf-8")
    looked_up = ("backend=recorded", f"backend.table={table}")
    expected = rf"seeds=\[{seed}\]: not among the \d+ kernels of backend.table={table}, .* name one that is by seeds="
    with pytest.raises(ConfigError, match=expected):
        checked(f"seeds=[{seed}]", *looked_up)
    checked(f"seeds=[{seed},{SEED}]", *looked_up)
    checked(f"seeds=[{seed}]", *looked_up, begun=True)


def test_a_models_code_runs_on_the_host_by_the_users_word_alone() -> None:
    with pytest.raises(ConfigError, match="answerer=openai on the host backend"):
        checked("answerer=openai", "answerer.model=m")
    checked("answerer=openai", "answerer.model=m", "backend.run_model_code=true")


def test_the_seeds_of_a_run_that_has_begun_are_not_looked_for(tmp_path: Path) -> None:
    gone = f"seeds=[{tmp_path / 'gone.cu'}]"
    with pytest.raises(ConfigError, match="cannot be read"):
        checked(gone)
    checked(gone, begun=True)
    with pytest.raises(ConfigError, match="answerer=openai on the host backend"):
        checked(gone, "answerer=openai", "answerer.model=m", begun=True)
