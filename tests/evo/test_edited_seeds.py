"""A seed kernel's file that was edited before the run had its first checkpoint is named, with the way back."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_search import SOURCE, KnobJudge, run_part, small_config, snapshot
from small_steady import go, steady

from evo.config import Config
from evo.seeds import sown
from evo.settings import ConfigError
from fitness.manifest import with_knobs
from population.archive import open_archive
from population.individual import individual_id
from population.run_folder import RunFolder, create_run_folder

OTHER = with_knobs(SOURCE, {"STAGES": 2})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


class Killed(Exception):
    pass


class DyingJudge(KnobJudge):
    def evaluate_all(self, *_arguments: object, **_named: object) -> list[object]:  # type: ignore[override]
        raise Killed


def begun(tmp_path: Path, folder: RunFolder) -> Config:
    """A run that was killed while its two seeds were judged."""
    seeds = [tmp_path / "one.cu", tmp_path / "two.cu"]
    for path, source in zip(seeds, (SOURCE, OTHER), strict=True):
        path.write_text(source, encoding="utf-8")
    config = replace(small_config(generations=1), seeds=[str(path) for path in seeds])
    with pytest.raises(Killed):
        run_part(config, folder, DyingJudge())
    return config


def test_the_seed_that_changed_is_named_with_the_way_back(tmp_path: Path, folder: RunFolder) -> None:
    config = begun(tmp_path, folder)
    edited = with_knobs(SOURCE, {"STAGES": 4})
    (tmp_path / "two.cu").write_text(edited, encoding="utf-8")
    kernels = sorted(folder.kernels.iterdir())
    with pytest.raises(ConfigError) as error:
        run_part(config, folder)
    before, now = individual_id(OTHER), individual_id(edited)
    assert str(error.value) == (
        f"seeds: {tmp_path / 'two.cu'} is not what the run began with: expected the text of {before}, found {now}; if "
        f"it was edited, copy {before}.cu from the run's kernels/ over it to go on; to search from it as it is, begin "
        "a run of another name"
    )
    assert sorted(folder.kernels.iterdir()) == kernels  # nothing of the other text is kept
    (tmp_path / "two.cu").write_bytes((folder.kernels / f"{before}.cu").read_bytes())
    assert run_part(config, folder).reason == "generation budget reached: 1 of 1"


def test_seeds_that_changed_places_are_told_of(tmp_path: Path, folder: RunFolder) -> None:
    config = begun(tmp_path, folder)
    (tmp_path / "one.cu").write_text(OTHER, encoding="utf-8")
    (tmp_path / "two.cu").write_text(SOURCE, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"one\.cu is not what the run began with: expected the text of k"):
        run_part(config, folder)


def test_one_seed_fewer_is_told_of(tmp_path: Path, folder: RunFolder) -> None:
    config = begun(tmp_path, folder)
    with open_archive(folder) as archive, pytest.raises(ConfigError) as error:
        sown([str(tmp_path / "one.cu")], archive)
    assert str(error.value) == (
        f"seeds=[{tmp_path / 'one.cu'}]: the run began with 2 seeds; name them all, or begin a run of another name"
    )
    assert run_part(config, folder).reason == "generation budget reached: 1 of 1"


def test_a_steady_search_says_the_same(tmp_path: Path, folder: RunFolder) -> None:
    seed = tmp_path / "one.cu"
    seed.write_text(SOURCE, encoding="utf-8")
    config = replace(steady(generations=1), seeds=[str(seed)])
    with pytest.raises(Killed):
        go(config, folder, DyingJudge())
    seed.write_text(OTHER, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"one\.cu is not what the run began with"):
        go(config, folder)


def test_once_there_is_a_checkpoint_the_files_do_not_matter(tmp_path: Path, folder: RunFolder) -> None:
    config = begun(tmp_path, folder)
    run_part(config, folder)
    (tmp_path / "one.cu").write_text("edited", encoding="utf-8")
    (tmp_path / "two.cu").unlink()
    run_part(replace(config, stop=replace(config.stop, generations=2)), folder)
    assert snapshot(folder)["checkpoint"]["generation"] == 2
