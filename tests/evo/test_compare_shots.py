"""Single shots compared: pair by pair, with failures, ties and lost replies counted as what they are."""

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import evo
from small_records import passed
from small_runs import write_run
from small_search import run_part, small_config
from small_shots import BANK, shot, shot_config

from evo.compare.funnel import Funnel
from evo.compare.promises import best_scenario_gain, promised_gain
from evo.compare.shots import Shot, compare_shots, read_shots
from evo.compare.statistics import least_sign_p
from population.run_folder import create_run_folder, open_run_folder


def made(style: str, question: str, gain: float | None, *, replied: bool = True, run: str = "one") -> Shot:
    funnel = Funnel(questions=1, replies=int(replied), readable=int(replied), right=int(gain is not None))
    return Shot(
        run=run, parent="seed", question=question, layer="memory", style=style, outcome="child", status="",
        gain=gain, reply_characters=0, promised=None, best_scenario=None, funnel=funnel,
    )  # fmt: skip


def test_pairs_are_counted_as_they_fell() -> None:
    shots = [
        made("question", "a", 1.2), made("imperative", "a", 1.1),
        made("question", "b", 0.9), made("imperative", "b", None),  # no right kernel is behind any
        made("question", "c", 1.0), made("imperative", "c", 1.0),
        made("question", "d", None), made("imperative", "d", None),
        made("question", "e", 1.5), made("imperative", "e", None, replied=False),  # no reply is no style's fault
        made("question", "a", 0.5, run="two"), made("imperative", "a", 0.6, run="two"),
    ]  # fmt: skip
    comparison = compare_shots(shots)
    (pair,) = comparison.pairs
    assert (pair.first, pair.second) == ("question", "imperative")
    assert (pair.pairs, pair.both_right, pair.second_ahead, pair.second_behind) == (5, 3, 1, 2)
    assert pair.ratio is not None
    assert pair.ratio.mean == pytest.approx(((1.1 / 1.2) * 1.0 * (0.6 / 0.5)) ** (1 / 3))
    assert pair.ratio.count == 3
    assert pair.sign_test == pair.sign_test_holm == 1.0
    assert pair.least_p == 0.25
    question, imperative = comparison.styles
    assert (question.funnel.questions, question.funnel.replies, question.funnel.right) == (6, 6, 5)
    assert (imperative.funnel.questions, imperative.funnel.replies, imperative.funnel.right) == (6, 5, 3)
    assert imperative.gain is not None
    assert imperative.gain.mean == pytest.approx((1.1 * 1.0 * 0.6) ** (1 / 3))


def test_all_pairs_of_styles_are_corrected_together() -> None:
    shots = [
        made(style, f"q{number}", gain)
        for number in range(8)
        for style, gain in (("question", 1.2), ("open", 1.1), ("bare", 1.1))
    ]
    by_pair = {(pair.first, pair.second): pair for pair in compare_shots(shots).pairs}
    ahead = by_pair["question", "open"]
    assert ahead.sign_test == pytest.approx(2 / 256)
    assert ahead.sign_test_holm == pytest.approx(2 * 2 / 256)  # of the two in which a style was ever ahead
    assert by_pair["open", "bare"].sign_test is None
    assert by_pair["open", "bare"].ratio is not None


def test_styles_tell_how_long_replies_are_and_how_many_promises_were_kept() -> None:
    def told(characters: int, promised: float | None, best: float | None) -> Shot:
        shot = made("question", str(characters), None if best is None else 1.0)
        return replace(shot, reply_characters=characters, promised=promised, best_scenario=best)

    shots = [
        told(900, 0.04, 0.05), told(300, 0.04, 0.03), told(100, None, 0.2), told(200, 0.01, None), told(0, None, None),
    ]  # fmt: skip
    (style,) = compare_shots(shots).styles
    assert (style.reply_characters, style.promised, style.kept) == (250, 2, 1)


def test_layers_are_told_apart() -> None:
    other = replace(made("question", "c", 0.9), layer="launch")
    layers = compare_shots([made("question", "a", 1.2), made("question", "b", 1.1), other]).layers
    assert [(each.layer, each.shots) for each in layers] == [("launch", 1), ("memory", 2)]
    assert layers[1].gain is not None
    assert layers[1].gain.mean == pytest.approx((1.2 * 1.1) ** 0.5)


@pytest.mark.parametrize(
    ("expectation", "promised"),
    [
        ("head_dim 64 2 to 5 % faster at 4096, 1 to 2 % at 512; the rest unchanged", 0.02),
        ("from 0.2475 to about 0.236 ms (4–5%)", 0.04),
        ("s512 3,5 per cent", 0.035),
        ("5 % to 10 % for b1, others as before", 0.05),
        ("95 % of the roof, 3 to 4 % faster; b1 5 % slower", 0.03),
        ("no change (0 %)", None),
        ("faster everywhere", None),
        ("", None),
    ],
)
def test_what_a_reply_promises(expectation: str, promised: float | None) -> None:
    assert promised_gain(expectation) == (None if promised is None else pytest.approx(promised))


def test_the_best_scenario_counts_of_those_that_both_were_timed_on() -> None:
    parent = passed("parent", {"a": 1.0, "b": 2.0})
    assert best_scenario_gain(passed("child", {"a": 1.1, "b": 2.1, "c": 9.0}), parent) == pytest.approx(0.1)
    assert best_scenario_gain(passed("child", {"c": 9.0}), parent) is None


def test_the_least_p_of_a_sign_test() -> None:
    assert [least_sign_p(apart) for apart in (1, 2, 6)] == [1.0, 0.5, 1 / 32]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    shot(root, "one", shot_config())
    shot(root, "two", shot_config(rng_seed=1))
    return root


def test_a_kernel_that_two_styles_came_to_is_each_ones(runs: Path) -> None:
    shots = read_shots("one", open_run_folder(runs / "one"))
    again = [each for each in shots if each.outcome == "child"]
    assert len(again) == len(shots) == 12
    assert all(each.gain is None or each.gain > 0 for each in shots)
    assert sum(each.funnel.new for each in shots) == 12
    with_kernel = {(each.status, each.gain) for each in shots}
    assert len(with_kernel) < 12  # some came to the same


def test_the_command_shows_the_pairs_and_says_that_it_was_offline(runs: Path, tmp_path: Path) -> None:
    files = ("--csv", str(tmp_path / "shots.csv"), "--json", str(tmp_path / "shots.json"))
    said = evo("compare", str(runs / "one"), str(runs / "two"), *files)
    assert said.code == 0
    assert said.out.count("offline: phrasing has no effect by construction") == 5  # under each table, and once in words
    assert "what the replies are like" in said.out
    assert "by the layer that was asked about" in said.out
    assert "question / imperative" in said.out
    assert "caution: shots about one parent are not independent" in said.out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "shots.csv").read_text())))
    assert len(rows) == 24
    assert {row["run"] for row in rows} == {"one", "two"}
    rows = [row for row in rows if row["gain"]]
    record = json.loads((tmp_path / "shots.json").read_text())
    pair = record["pairs"][0]
    gains = {
        style: {(each["run"], each["question"]): float(each["gain"]) for each in rows if each["style"] == style}
        for style in ("question", "imperative")
    }
    both = sorted(gains["question"].keys() & gains["imperative"].keys())
    logs = [math.log(gains["imperative"][key] / gains["question"][key]) for key in both]
    assert pair["both_right"] == len(both)
    assert pair["ratio"]["mean"] == pytest.approx(math.exp(sum(logs) / len(logs)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one", "target=2"], "evo: compare: target=2: single shots are compared by style"),
        (["one", "--plot", "a.svg"], "evo: compare: --plot: a single shot has no way to a best"),
        (["one", "search"], "is a single shot and"),
        (["unfinished"], "its shots are not all judged; go on with the run first"),
    ],
)
def test_what_cannot_be_compared_gets_one_line(runs: Path, words: list[str], said: str) -> None:
    if "search" in words and not (runs / "search").exists():
        write_run(runs, "search", [1.0, 1.1])
    if "unfinished" in words:
        run_part(shot_config(evaluations=3), create_run_folder(runs, "unfinished"), bank=BANK)
    refused = evo("compare", *(str(runs / word) if (runs / word).is_dir() else word for word in words))
    assert refused.code == 2
    assert said in refused.errors
    assert refused.errors.count("\n") == 1


def test_a_search_is_compared_as_before(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "search")
    run_part(small_config(generations=1), folder)
    assert "one group only" in evo("compare", str(folder.path)).errors


def traces(runs: Path, into: Path) -> Path:
    """The traces of both runs in one file, as `cat` puts them together."""
    for name in ("one", "two"):
        assert evo("trace", "export", str(runs / name), "--out", str(into / f"{name}.jsonl")).code == 0
    both = into / "both.jsonl"
    both.write_bytes(b"".join((into / f"{name}.jsonl").read_bytes() for name in ("one", "two")))
    return both


def test_traces_are_compared_like_the_runs_that_they_tell_of(runs: Path, tmp_path: Path) -> None:
    both = traces(runs, tmp_path)
    of_runs = evo("compare", str(runs / "one"), str(runs / "two"), "--json", str(tmp_path / "runs.json"))
    of_traces = evo("compare", str(both), "--json", str(tmp_path / "traces.json"))
    assert (of_runs.code, of_traces.code) == (0, 0)
    assert (tmp_path / "traces.json").read_bytes() == (tmp_path / "runs.json").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "both.jsonl", "one.jsonl", "runs.json", "traces.json", "two.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda told: told[:-40], "cut off"),
        (lambda told: told.replace(b'"imperative"', b'"question"', 1), "was altered since it was written"),
        (lambda told: b"not a trace\n", "is no line of a trace"),
    ],
)
def test_a_file_that_is_no_whole_trace_gets_one_line(
    runs: Path, tmp_path: Path, spoil: Callable[[bytes], bytes], said: str
) -> None:
    both = traces(runs, tmp_path)
    both.write_bytes(spoil(both.read_bytes()))
    refused = evo("compare", str(both))
    assert (refused.code, refused.errors.count("\n")) == (2, 1)
    assert said in refused.errors
