"""`evo compare` on runs whose every figure is known."""

import contextlib
import csv
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from by_files import evo
from small_runs import FAILURE, write_run
from small_search import run_part, small_config

from evo.compare.funnel import Funnel
from evo.compare.outcomes import Arrival, Outcome
from evo.compare.plots import picture, require_plots
from evo.compare.runs import Run, find_runs, read_run
from evo.compare.summary import Comparison, compare_runs
from evo.compare.words import cautions, conclusions
from evo.settings import ConfigError
from evo.sweep import create_sweep
from population.run_folder import create_run_folder

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path):
        yield tmp_path


def read_all(*names: str) -> list[Run]:
    return [read_run(name, folder) for name, folder in find_runs(names).items()]


def compared(runs: Sequence[Run], by: str = "style", target: float | None = None, **more: Any) -> Comparison:
    return compare_runs(runs, by=by, target=target, outcome=more.get("outcome", Outcome.EQUAL_EVALUATIONS))


def write_groups(here: Path, groups: Mapping[str, Sequence[Sequence[float]]], **settings: Any) -> list[Run]:
    """Groups of runs by their style; the n-th runs of all groups have the rng_seed n."""
    for style, members in groups.items():
        for place, geomeans in enumerate(members):
            own = {"style.kind": style, "rng_seed": place, **settings}
            write_run(here / "runs", f"{style}-{place}", geomeans, settings=own)
    return read_all("runs")


def test_what_one_run_came_to(here: Path) -> None:
    """After 3 evaluations, the shorter run's number: 0.5, 0.5, 0.8; the target is the lesser best, 0.6."""
    write_run(here, "long", [0.5, FAILURE, 0.8, 1.0], usd=2.0, lost_usd=1.0, unreadable=2, asked_only=1)
    write_run(here, "short", [0.5, 0.6, 0.4], usd=2.5, settings={"style.kind": "open"})
    comparison = compared(read_all("long", "short"))
    one = next(run for run in comparison.runs if run.name == "long")
    assert (comparison.yardstick.evaluations, comparison.yardstick.spend_usd) == (3, 5.0)
    assert (comparison.yardstick.target, comparison.yardstick.top) == (0.6, 1.0)
    assert (one.evaluations, one.spend_usd, one.best, one.equal_evaluations) == (4, 11.0, 1.0, 0.8)
    assert one.equal_spend == 0.8  # the second question has cost 1 + 2 + 2 USD by then, the third 7
    assert one.area == pytest.approx((0.5 + 0.5 + 0.8) / 3)
    assert one.evaluations_to_target == Arrival(value=3, reached=True)
    assert one.usd_to_target == Arrival(value=5.0, reached=True)
    assert one.funnel == Funnel(questions=5, replies=5, readable=3, new=3, compiled=3, unwarned=3, right=2, faster=2)
    assert one.unfinished == 1
    told = "the funnel and the gains leave out 1 question of generations that are not complete"
    assert told in cautions(read_all("long", "short"), comparison)
    assert {layer: (gain.count, gain.mean) for layer, gain in one.gains.items()} == {
        "launch": (1, pytest.approx(1.6)), "memory": (1, pytest.approx(2.0)),
    }  # fmt: skip
    assert (one.lines_added, one.lines_readded) == (3, 0)


def test_a_target_that_was_never_reached_is_censored(here: Path) -> None:
    runs = write_groups(here, {"question": [[0.5, 0.9], [0.5, 0.6]], "open": [[0.5, 0.5], [0.5, 0.7]]})
    comparison = compared(runs, target=0.85)
    arrivals = {run.name: run.evaluations_to_target for run in comparison.runs}
    assert arrivals["runs/question-0"] == Arrival(value=2, reached=True)
    assert arrivals["runs/open-1"] == Arrival(value=2, reached=False)
    groups = {group.name: group for group in comparison.groups}
    assert (groups["open"].reached, groups["open"].evaluations_to_target) == (0, None)
    assert (groups["question"].reached, groups["question"].evaluations_to_target) == (1, 2.0)
    assert compared(runs, target=2.0).pairs[0].log_rank is None


def test_groups_apart_are_told_apart(here: Path) -> None:
    runs = write_groups(here, {"open": [[0.1 + 0.01 * n] for n in range(6)], "question": [[0.9 + n] for n in range(6)]})
    comparison = compared(runs)
    [pair] = comparison.pairs
    assert (pair.first, pair.second, pair.mann_whitney.statistic, pair.a12) == ("open", "question", 0.0, 0.0)
    assert pair.mann_whitney.p == pytest.approx(2 / 924)
    assert pair.paired is not None
    assert (pair.paired.pairs, pair.paired.sign_test) == (6, pytest.approx(1 / 32))
    assert pair.paired.median_difference == pytest.approx(2.5 + 0.9 - 0.125)
    assert pair.paired.signed_rank is not None
    assert pair.paired.signed_rank.p == pytest.approx(1 / 32)
    assert conclusions(comparison) == [
        "open against question: question is better (p = 0.00216, A12 = 0, a large effect)"
    ]


def test_too_few_runs_are_said_to_be_too_few(here: Path) -> None:
    runs = write_groups(here, {"open": [[0.1], [0.2], [0.3]], "question": [[0.4], [0.5], [0.6]]})
    said = conclusions(compared(runs))
    assert said[0] == (
        "open against question: too few runs to say anything: with 3 and 3 the test's least p is 0.1, above 0.05; an "
        "effect as seen (A12 = 0) takes about 6 runs a group for 80 % power"
    )
    assert "open: the interval of its median is too narrow: with 3 runs even their whole range holds" in said[1]


def test_enough_for_one_pair_may_be_too_few_for_many(here: Path) -> None:
    groups = {style: [[0.1 * place + 0.01 * n] for n in range(4)] for place, style in enumerate("abcd", start=1)}
    comparison = compared(write_groups(here, groups))
    assert len(comparison.pairs) == 6
    assert [pair.least_holm for pair in comparison.pairs] == [pytest.approx(6 * 2 / 70)] * 6
    assert "too few runs to say anything once corrected for 6 pairs: with 4 and 4" in conclusions(comparison)[0]


def test_equal_outcomes_are_not_called_too_few_runs(here: Path) -> None:
    [pair, *_] = conclusions(compared(write_groups(here, {"open": [[0.5]] * 4, "question": [[0.5]] * 4})))
    assert "too many equal outcomes to say anything: with 4 and 4 the test's least p is 1, above 0.05" in pair


def test_groups_of_one_and_equal_ones(here: Path) -> None:
    comparison = compared(write_groups(here, {"open": [[0.5]], "question": [[0.5]]}))
    [pair] = comparison.pairs
    assert (pair.a12, pair.mann_whitney.p, pair.runs_needed) == (0.5, 1.0, None)
    assert all(group.interval is None for group in comparison.groups)
    said = conclusions(comparison)
    assert said[0].endswith("no effect is seen (A12 = 0.5), so no number of runs follows; it takes 4 a group at least")
    assert said[1:] == ["open: one run has no interval", "question: one run has no interval"]


def test_a_run_in_which_nothing_passed_counts_as_nought(here: Path) -> None:
    runs = write_groups(here, {"open": [[FAILURE, FAILURE], [0.5, 0.7]], "question": [[0.5, 0.6], [0.5, 0.8]]})
    comparison = compared(runs)
    empty = comparison.runs[0]
    assert (empty.best, empty.area, empty.evaluations_to_target) == (0.0, 0.0, Arrival(value=2, reached=False))
    assert comparison.yardstick.target == 0.6
    assert "nothing passed in runs/open-0: counted as 0, below any speedup" in cautions(runs, comparison)


def test_offline_runs_are_labelled_where_styles_are_compared(here: Path) -> None:
    runs = write_groups(here, {"open": [[0.5]], "question": [[0.5]]}, **{"answerer.kind": "offline"})
    assert "all runs are offline: phrasing has no effect by construction" in cautions(runs, compared(runs))
    said = evo("compare", "runs")
    assert "caution: all runs are offline: phrasing has no effect by construction\n" in said.out
    assert said.out.count("phrasing has no effect by construction") == 1 + 5  # under every table too
    write_run(here / "more", "x", [0.5], settings={"style.kind": "bare"})
    mixed = read_all("runs", "more")
    [told] = [each for each in cautions(mixed, compared(mixed)) if "offline" in each]
    assert told == "runs/open-0, runs/question-0: these runs are offline: phrasing has no effect by construction"


def test_what_else_sets_runs_apart_is_told(here: Path) -> None:
    write_run(here, "a", [0.5, 0.6], settings={"evolution.mu": 2})
    write_run(here, "b", [0.5], settings={"style.kind": "open", "evolution.mu": 3, "device": "other"})
    runs = read_all("a", "b")
    told = cautions(runs, compared(runs, outcome=Outcome.BEST))
    assert told == [
        "the runs differ in device: their speedups have no common scale",
        "the runs differ in more than style: evolution.mu",
        "the runs made different numbers of evaluations: outcome=best favours the longer ones",
    ]


def test_runs_that_were_not_timed_alike_are_told_of(here: Path) -> None:
    alike = write_groups(here, {"open": [[0.50, 0.6]], "question": [[0.52, 0.7]]})
    assert cautions(alike, compared(alike)) == []
    write_run(here, "slow", [0.25, 0.6], settings={"style.kind": "bare"})
    runs = [*alike, *read_all("slow")]
    [told] = cautions(runs, compared(runs))
    assert re.fullmatch(r"seed k[0-9a-f]{12} itself was measured at 0\.2500 to 0\.5200 × in these runs: .*", told)


def test_the_documented_comparison_is_what_the_command_says(here: Path) -> None:
    with tarfile.open(DOCS / "results" / "compare-example.tar.xz") as archive:
        archive.extractall(here, filter="data")
    documented = (DOCS / "compare.md").read_text(encoding="utf-8")
    for line in evo("compare", "greedy-or-broad", "by=evolution.mu").out.splitlines():
        assert line.strip() in documented


def test_a_folder_stands_for_the_runs_below_it_and_each_counts_once(here: Path) -> None:
    for name in ("0", "1", "10", "2"):
        write_run(here / "sweep", name, [0.5])
    found = find_runs(["sweep", "sweep/10", "./sweep"])
    assert list(found) == ["sweep/0", "sweep/1", "sweep/2", "sweep/10"]
    write_run(here / "other" / "sweep", "0", [0.5])
    assert list(find_runs(["sweep/0", "other/sweep/0"])) == ["sweep/0", "other/sweep/0"]


def test_a_sweeps_job_is_called_by_the_sweeps_name_too(here: Path) -> None:
    sweep = create_sweep(here / "runs", "styles", ["rng_seed=0,1"])
    for job in sweep.jobs():
        job.archive.touch()
    assert list(find_runs(["styles/1"])) == ["styles/1"]
    assert list(find_runs(["styles", "runs/styles/1"])) == ["styles/0", "styles/1"]


def test_real_searches_are_compared_by_a_number(here: Path) -> None:
    """Their archives are those of whole searches by the offline answerer; numbers are in their order, not as words."""
    for mu in (10, 2):
        run_part(small_config(generations=3, mu=mu), create_run_folder(here / "runs", f"mu{mu}"))
    runs = read_all("runs")
    comparison = compared(runs, by="evolution.mu")
    assert [group.name for group in comparison.groups] == ["2", "10"]
    assert comparison.pairs[0].paired is not None  # the same rng_seed and the same seed kernel
    for run in comparison.runs:
        assert run.funnel.questions + run.unfinished == 12
        assert run.funnel.new == run.evaluations - 1
        assert run.funnel.questions >= run.funnel.readable >= run.funnel.new >= run.funnel.compiled >= run.funnel.right
        assert run.lines_added > 0


def test_files_hold_what_the_console_shows(here: Path) -> None:
    write_groups(here, {"open": [[0.5, 0.55], [0.5, 0.7]], "question": [[0.5, 0.6], [0.5, 0.9]]})
    said = evo("compare", "runs", "by=style.kind", "--csv", "a.csv", "--json", "a.json")
    assert (said.code, said.errors) == (0, "")
    assert said.out.endswith("written: a.csv\nwritten: a.json\n")
    rows = list(csv.DictReader(io.StringIO(Path("a.csv").read_text(encoding="utf-8"))))
    assert [(row["name"], row["group"], row["best"]) for row in rows] == [
        ("runs/open-0", "open", "0.55"), ("runs/open-1", "open", "0.7"),
        ("runs/question-0", "question", "0.6"), ("runs/question-1", "question", "0.9"),
    ]  # fmt: skip
    record = json.loads(Path("a.json").read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert (record["schema"], record["by"], record["outcome"]) == (1, "style.kind", "equal_evaluations")
    assert record["pairs"][0]["a12"] == 0.25
    assert all(line in said.out for line in record["conclusions"])
    assert re.search(r"open / question +1 +0\.667 +0\.667 +0\.250 +\d+", said.out)


def test_pictures(here: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = write_groups(here, {"open": [[0.5, 0.55], [0.5, 0.7]], "question": [[0.5, 0.6], [0.5, 0.9]]})
    comparison = compared(runs)
    drawn = picture(comparison, runs, "svg", "a heading")
    assert drawn == picture(comparison, runs, "svg", "a heading")
    assert all(word in drawn.decode() for word in ("open", "question", "evaluations", "target", "a heading"))
    assert picture(comparison, runs, "png").startswith(b"\x89PNG")
    assert evo("compare", "runs", "--plot", "a.PNG").code == 0
    assert Path("a.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"not installed: pip install matplotlib"):
        require_plots(Path("a.svg"), find=lambda name: None)


@pytest.fixture(scope="module")
def odd_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that can be compared, and what cannot."""
    folder = tmp_path_factory.mktemp("odd")
    write_run(folder, "a", [0.5], settings={"evolution.mu": 1})
    write_run(folder, "b", [0.6], settings={"evolution.mu": 2, "style.kind": "open"})
    write_run(folder, "begun", [])
    write_run(folder, "barren", [FAILURE])
    write_run(folder, "barren2", [FAILURE], settings={"style.kind": "open"})
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "compare: no run named; expected evo compare RUNS…"),
        (["nowhere"], "nowhere: no such run"),
        (["empty"], "empty: no run is in this folder"),
        (["a", "b", "by=stlye"], "by=stlye: no run has this key; did you mean style?"),
        (["a", "b", "by=evolution.my"], "did you mean evolution.mu?"),
        (["a", "b", "by=zzzzzz"], "by=zzzzzz: no run has this key; `evo evolve --cfg job` lists them"),
        (["a", "b", "by=suite"], "by=suite: one group only, suite=tiny; these runs differ in evolution.mu, style.kind"),
        (["a"], "by=style: one group only, style.kind=question; these runs differ in nothing"),
        (["a", "b", "targt=1"], "compare: 'targt=1' is no option; did you mean 'target'?"),
        (["a", "b", "by="], "compare: by= needs a value"),
        (["a", "b", "target=-1"], "compare: target=-1: expected a geometric mean speedup above 0"),
        (["a", "b", "target=nan"], "compare: target=nan: expected"),
        (["a", "b", "outcome=bets"], "compare: outcome=bets; did you mean 'best'?"),
        (["a", "b", "outcome=equal_spend"], "outcome=equal_spend: a run that spent nothing is among these"),
        (["a", "b", "--cvs", "x"], "compare: --cvs is no option"),
        (["a", "b", "--csv"], "compare: --csv needs a file's name"),
        (["a", "b", "--csv", "nowhere/x.csv"], "nowhere/x.csv"),
        (["a", "b", "--plot", "x.pdf"], "--plot x.pdf: expected a file's name that ends in .png or .svg"),
        (["a", "begun"], "begun: nothing was measured in this run; leave it out"),
        (["barren", "barren2"], "no candidate passed in any of these runs"),
    ],
)
def test_a_bad_command_line_gets_one_line(odd_runs: Path, words: list[str], said: str) -> None:
    with contextlib.chdir(odd_runs):
        told = evo("compare", *words)
    assert (told.code, told.errors.count("\n")) == (2, 1)
    assert said in told.errors
