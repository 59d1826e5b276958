"""One run told twice is no comparison: neither in single shots nor in searches, as folders or as traces."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from by_files import evo
from small_runs import write_run
from small_shots import shot, shot_config

from evo.compare.repeats import require_different
from evo.settings import ConfigError
from population.run_folder import open_run_folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    shot(root, "one", shot_config())
    shot(root, "two", shot_config(rng_seed=1))
    return root


def refusal(*words: str) -> str:
    said = evo("compare", *words)
    assert (said.code, said.out, said.errors.count("\n")) == (2, "", 1)
    return said.errors


def test_a_copy_of_a_single_shot_is_refused(single: Path) -> None:
    shutil.copytree(single / "one", "copy")
    assert "compare: one and copy are one run, told twice" in refusal(str(single / "one"), "copy")
    assert evo("compare", str(single / "one"), str(single / "two")).code == 0


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_a_trace_beside_its_run_its_copy_or_itself_is_refused(single: Path, suffix: str) -> None:
    run, trace, copy, both = str(single / "one"), *(Path(f"{name}.jsonl{suffix}") for name in ("t", "copy", "both"))
    assert evo("trace", "export", run, "--out", str(trace)).code == 0
    copy.write_bytes(trace.read_bytes())
    both.write_bytes(trace.read_bytes() * 2)
    assert f"compare: one and one of {trace} are one run, told twice" in refusal(run, str(trace))
    assert "compare: one and one-2 are one run, told twice" in refusal(str(trace), str(copy))
    assert "compare: one and one-2 are one run, told twice" in refusal(str(both))
    assert evo("compare", str(trace), str(trace)).code == 0  # the same file, which is read once


def test_a_copy_of_a_search_is_refused_and_so_is_its_beginning(here: Path) -> None:
    for folder, geomeans in (("a", [0.5, 0.6, 0.7]), ("b", [0.5, 0.6, 0.7, 0.8]), ("d", [0.5, 0.6, 0.7])):
        write_run(here / folder, "same", geomeans)  # equal names make equal texts
    write_run(here / "c", "same", [0.5, 0.6, 0.71], settings={"rng_seed": 1})  # asked alike and measured otherwise
    assert "are one run, told twice" in refusal("a/same", "d/same")
    assert "a/same and b/same are one run, told twice" in refusal("a/same", "b/same")
    assert "b/same and a/same are one run, told twice" in refusal("b/same", "a/same")
    assert evo("compare", "a/same", "c/same", "by=rng_seed").code == 0


def test_runs_that_have_measured_seeds_alone_are_one_where_they_are_of_equal_settings(here: Path) -> None:
    runs = {name: write_run(here, name, [0.5], settings={"rng_seed": seed}) for name, seed in (("a", 0), ("b", 1))}
    require_different(runs)
    shutil.copytree("a", "c")
    with pytest.raises(ConfigError, match="compare: a and c are one run, told twice"):
        require_different({**runs, "c": open_run_folder(here / "c")})
    with pytest.raises(ConfigError, match="compare: a and grown are one run, told twice"):
        require_different({"a": runs["a"], "grown": write_run(here, "grown", [0.5, 0.6])})


def test_all_that_are_told_twice_are_named_at_once(here: Path) -> None:
    for folder, geomeans in (("a", [0.5, 0.6]), ("b", [0.5, 0.6]), ("c", [0.5, 0.7]), ("d", [0.5, 0.7])):
        write_run(here / "all" / folder, "same", geomeans)
    assert refusal("all") == (
        "evo: compare: all/a/same and all/b/same are one run, told twice, and so are all/c/same and all/d/same: equal "
        "settings, equal attempts and, to the last digit, equal evaluations; leave one of them out, by naming the "
        "others\n"
    )


def test_two_searches_in_a_table_from_one_rng_seed_are_told_why_they_are_alike(here: Path) -> None:
    looked_up = {"backend": "recorded", "rng_seed": 7}
    for folder in ("a", "b"):
        write_run(here / folder, "same", [0.5, 0.6], settings=looked_up)
    said = refusal("a/same", "b/same")
    assert "compare: a/same and b/same are one run, told twice: equal settings" in said
    assert said.endswith(
        ". A search in a table comes to the same whenever it is made with rng_seed=7: give each run its own rng_seed\n"
    )


def test_runs_that_have_measured_nothing_are_not_one_another(here: Path) -> None:
    for folder in ("a", "b"):
        write_run(here / folder, "same", [])
    assert "nothing was measured in this run" in refusal("a/same", "b/same")


def test_two_settings_on_one_table_are_two_runs_though_they_agree_in_all_they_did(here: Path) -> None:
    for name, mu in (("a", 1), ("b", 8)):
        write_run(here / name, "same", [0.5, 0.6], settings={"evolution.mu": mu})
    assert evo("compare", "a/same", "b/same", "by=evolution.mu").code == 0
