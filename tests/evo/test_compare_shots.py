"""Single shots compared: pair by pair, with failures, ties and lost replies counted as what they are."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import evo
from small_records import attempt, individual, passed, within
from small_runs import write_run
from small_search import run_part, small_config
from small_shots import BANK, shot, shot_config

from evo.attempt_events import ATTEMPT_EVENT
from evo.compare.promises import best_scenario_gain, promised_gain
from evo.compare.shots import read_shots
from evo.compare.statistics import least_sign_p
from evo.evaluation_records import record_evaluation
from evo.history import Outcome
from population.archive import create_archive
from population.atomic_file import strict_json
from population.records import EventRecord, PromptRecord
from population.run_folder import create_run_folder, open_run_folder


@pytest.mark.parametrize(
    ("expectation", "promised"),
    [
        ("head_dim 64 2 to 5 % faster at 4096, 1 to 2 % at 512; the rest unchanged", 0.02),
        ("from 0.2475 to about 0.236 ms (4–5%)", 0.04),
        ("s512 3,5 per cent", 0.035),
        ("5 % to 10 % for b1, others as before", 0.05),
        ("95 % of the roof, 3 to 4 % faster; b1 5 % slower", 0.03),
        ("no change (0 %)", None),
        ("0 to 1 % faster everywhere", None),
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


def test_a_shot_has_the_noise_of_what_was_measured_and_the_prompt_that_was_put_first(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "by-hand")
    parent = replace(individual("parent", 0), birth=-1)
    child = individual("child", 1, parent)
    with create_archive(folder) as archive:
        for one, evaluation in ((parent, within("parent", 1.0, 1.02)), (child, within("child", 1.2, 1.05))):
            archive.record_individual(one)
            record_evaluation(archive, one.id, evaluation)
        asked = [
            attempt(0, (parent,), child), attempt(1, (parent,), None, outcome=Outcome.NO_CHANGE),
            attempt(2, (parent,), None),
        ]  # fmt: skip
        for each in asked:
            archive.record_event(EventRecord(kind=ATTEMPT_EVENT, record=strict_json(each.to_json())))
        for number, again, text in ((0, 0, "a"), (1, 0, "a"), (2, 0, "b"), (2, 1, "b, and once more")):
            archive.record_prompt(PromptRecord(number=number, attempt=again, text=text))
    shots = read_shots("by-hand", folder)
    assert [each.noise for each in shots] == [pytest.approx(math.log(1.05)), pytest.approx(math.log(1.02)), 0.0]
    assert [each.gain for each in shots] == [pytest.approx(1.2), 1.0, None]
    assert [each.prompt_sha256[:8] for each in shots] == ["ca978112", "ca978112", "3e23e816"]


def test_the_command_shows_the_pairs_and_says_that_it_was_offline(runs: Path, tmp_path: Path) -> None:
    files = ("--csv", str(tmp_path / "shots.csv"), "--json", str(tmp_path / "shots.json"))
    said = evo("compare", str(runs / "one"), str(runs / "two"), *files)
    assert said.code == 0
    assert said.out.count("offline: phrasing has no effect by construction") == 7  # under each table, and once in words
    assert "what the replies are like" in said.out
    assert "by the layer that was asked about" in said.out
    assert "question / imperative" in said.out
    assert "caution: shots about one parent are not independent" in said.out
    assert re.search(r"caution: fewer distinct prompts than shots \(.*bare 1 for 6\)", said.out)  # both have one parent
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
