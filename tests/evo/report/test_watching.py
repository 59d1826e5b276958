"""When a page is made again, and what stands there while a run cannot be read."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pages import parsed
from small_runs import write_run

from evo.report.watching import Served, Watch
from population.archive import open_archive
from population.records import SpendRecord
from population.run_folder import RunFolder, create_run_folder


@dataclass(kw_only=True)
class Clock:
    """Each look at it takes as long as the test says."""

    step_s: float = 0.0
    now_s: float = field(default=100.0)

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path, "one", [0.5, 0.75])


def spend(run: RunFolder, usd: float) -> None:
    with open_archive(run) as archive:
        archive.record_spend(SpendRecord(key=f"test {usd}", kind="cost_usd", amount=usd))


def page(watch: Watch, address: str = "/") -> Served:
    served = watch.page(address)
    assert served is not None
    return served


def text(served: Served, tag: str, place: int = 0) -> str:
    return parsed(served.body.decode()).all(tag)[place].text


def test_a_page_changes_with_its_run_and_only_then(run: RunFolder) -> None:
    watch = Watch({"one": run}, Clock())
    first = page(watch)
    assert page(watch) == first
    spend(run, 7.5)
    second = page(watch)
    assert second.tag != first.tag
    assert "7.5000" in second.body.decode()


def test_a_page_that_took_long_stands_for_ten_times_as_long(run: RunFolder) -> None:
    clock = Clock(step_s=2.0)
    watch = Watch({"one": run}, clock)
    first = page(watch)  # begun at 102 s, made at 104 s
    spend(run, 7.5)
    clock.now_s = 121.0
    assert page(watch) == first
    clock.now_s = 122.0
    assert page(watch).tag != first.tag


def test_a_run_that_goes_away_leaves_a_line_and_comes_back(run: RunFolder, tmp_path: Path) -> None:
    watch = Watch({"one": run}, Clock())
    first = page(watch)
    run.path.rename(tmp_path / "away")
    assert f"{run.archive}: " in text(page(watch), "p", 1)
    (tmp_path / "away").rename(run.path)
    assert page(watch).tag == first.tag


def test_a_run_without_tables_is_told_as_such(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "empty")
    folder.archive.touch()
    assert "empty: nothing is recorded there" in page(Watch({"empty": folder}, Clock())).body.decode()


def test_one_run_has_one_page(run: RunFolder) -> None:
    watch = Watch({"one": run}, Clock())
    assert text(page(watch), "h1") == "one"
    assert watch.page("/run/1") is None


def test_several_runs_have_an_overview_and_a_page_each(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(Path(shutil.copytree(run.path, tmp_path / "other")))
    watch = Watch({"one": run, "sweep/other": other}, Clock())
    assert text(page(watch), "h1") == "2 runs side by side"
    assert [e.attributes["href"] for e in parsed(page(watch).body.decode()).all("a")][1:] == ["/run/1", "/run/2"]
    assert text(page(watch, "/run/2"), "h1") == "sweep/other"
    assert [watch.page(address) for address in ("/run/0", "/run/3", "/run/01", "/run", "")] == [None] * 5


def test_the_overview_follows_each_run(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(Path(shutil.copytree(run.path, tmp_path / "other")))
    watch = Watch({"one": run, "other": other}, Clock())
    first = page(watch)
    assert page(watch) == first
    spend(other, 3.0)
    assert "3.00" in page(watch).body.decode()
    shutil.rmtree(other.path)
    assert [e.text[:7] for e in parsed(page(watch).body.decode()).all("p", class_="trouble")] == ["other: "]
