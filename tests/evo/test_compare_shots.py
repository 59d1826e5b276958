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
from small_records import attempt, build, failed, individual, known, passed, timing
from small_runs import write_run
from small_search import run_part, small_config
from small_shots import BANK, shot, shot_config

from evo.compare.funnel import Funnel, funnel_of
from evo.compare.promises import best_scenario_gain, promised_gain
from evo.compare.shot_summary import compare_shots
from evo.compare.shot_words import shot_cautions, shot_conclusions
from evo.compare.shots import Shot, read_shots
from evo.compare.statistics import least_sign_p, mean_gain
from evo.compare.style_pairs import StylePair
from evo.history import History
from evo.judging import question_outcome
from evo.noise import beyond_noise
from fitness.evaluation import Evaluation, Status
from population.run_folder import create_run_folder, open_run_folder


def made(
    style: str, question: str, gain: float | None, *, replied: bool = True, run: str = "one", parent: str = "seed",
    noise: float = 0.0,
) -> Shot:  # fmt: skip
    right = int(gain is not None)
    funnel = Funnel(questions=1, replies=int(replied), readable=int(replied), unwarned=right, right=right)
    return Shot(
        run=run, parent=parent, question=question, layer="memory", style=style, outcome="child", status="",
        gain=gain, noise=noise, prompt_sha256="", reply_characters=0, promised=None, best_scenario=None, funnel=funnel,
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
    assert (pair.level, pair.both_failed) == (2, 1)
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


def only(*shots: Shot) -> StylePair:
    (pair,) = compare_shots(shots).pairs
    return pair


def test_a_difference_within_the_noise_of_both_is_none() -> None:
    """The root of 0.03² + 0.04² is 0.05, and log 1.06 is 0.0583, log 1.05 0.0488."""
    shots = [
        made("question", "a", 1.0, noise=0.03), made("imperative", "a", 1.05, noise=0.04),
        made("question", "b", 1.0, noise=0.03), made("imperative", "b", 1.06, noise=0.04),
        made("question", "c", 1.06, noise=0.03), made("imperative", "c", 1.0, noise=0.04),
        made("question", "d", 1.0, noise=0.03), made("imperative", "d", None),
    ]  # fmt: skip
    pair = only(*shots)
    assert (pair.second_ahead, pair.second_behind, pair.level, pair.both_failed) == (1, 2, 1, 0)
    assert pair.sign_test == 1.0
    assert (pair.both_right, pair.median_ratio) == (3, pytest.approx(1.05))


def test_ratios_are_also_told_by_their_median_and_ranks_and_by_parent() -> None:
    """Logarithms of 2, 3, 4 and -1 in units: their ranks, positive 9 of 10, are so in 2 · 2 of 16 splits of signs."""
    ratios = {("a", "one"): 1.02, ("b", "one"): 1.03, ("a", "two"): 1.04, ("b", "two"): 0.99}
    shots = []
    for (parent, run), ratio in ratios.items():
        shots += [made("question", "q", 1.0, run=run, parent=parent), made("open", "q", ratio, run=run, parent=parent)]
    pair = only(*shots)
    assert pair.median_ratio == pytest.approx(1.025)
    assert pair.signed_rank is not None
    assert (pair.signed_rank.statistic, pair.signed_rank.p) == (9.0, 0.25)
    of_parents = mean_gain([(1.02 * 1.04) ** 0.5, (1.03 * 0.99) ** 0.5])
    assert pair.ratio_by_parent is not None
    assert (pair.ratio_by_parent.count, pair.ratio_by_parent.mean) == (2, pytest.approx(of_parents.mean))
    assert pair.ratio_by_parent.interval is not None
    assert of_parents.interval is not None
    assert pair.ratio_by_parent.interval.low == pytest.approx(of_parents.interval.low)


def test_the_pairs_needed_are_those_of_the_test_that_decides() -> None:
    """Ahead in 6 of 8: Noether's 32 at 0.05, and 40 with a fifth of the pairs level; at 0.05 / 2 it is 39 and 49."""
    gains = [1.1] * 6 + [0.9] * 2 + [1.0] * 2
    shots = [made("question", str(place), 1.0) for place in range(10)]
    shots += [made("imperative", str(place), gain) for place, gain in enumerate(gains)]
    pair = only(*shots)
    assert (pair.apart, pair.apart_needed, pair.pairs_needed) == (8, 32, 40)
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against imperative: no difference shown (sign test p = 0.289; of 10 pairs question ahead in 2, "
        "imperative in 6, level in 2; mean imperative / question, 95 %: 1.037 (0.976–1.101) n=10), which does not show "
        "that there is none; an effect as large as seen (6 of 8 ahead), which a small sample overstates, takes the "
        "sign test at 0.05 about 32 pairs not level, 40 with the level ones, for 80 % power"
    )
    more = [*shots, *(replace(shot, style="open") for shot in shots if shot.style == "imperative")]
    three = compare_shots(more)
    assert [(each.apart, each.apart_needed, each.pairs_needed) for each in three.pairs] == [
        (8, 39, 49), (8, 39, 49), (0, None, None),
    ]  # fmt: skip
    said, _, level = shot_conclusions(three)
    assert "(sign test p = 0.289, 0.578 after Holm's correction; of 10 pairs question ahead in 2," in said
    assert "takes the sign test at 0.05 / 2 about 39 pairs not level, 49 with the level ones" in said
    assert level.startswith("imperative against open: neither was ahead in any pair (of 10 pairs imperative ahead in 0")


def test_few_pairs_level_pairs_and_failures_are_said() -> None:
    shots = [
        made("question", "a", 1.0), made("open", "a", 1.1), made("question", "b", 1.2), made("open", "b", 1.1),
        made("question", "c", None), made("open", "c", None),
    ]  # fmt: skip
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against open: too few pairs to say anything: with 2 pairs not level the sign test's least p is 0.5, "
        "above 0.05 (of 3 pairs question ahead in 1, open in 1, level in 1, both failed in 1 of these; mean open / "
        "question, 95 %: 1.004 (0.315–3.198) n=2); as often ahead as behind, so no number of pairs follows"
    )


def test_a_style_that_is_better_is_called_so() -> None:
    shots = [made(style, str(place), gain) for place in range(6) for style, gain in (("question", 1.2), ("open", 1.1))]
    (said,) = shot_conclusions(compare_shots(shots))
    assert said == (
        "question against open: question is better (sign test p = 0.0312; of 6 pairs question ahead in 6, open in 0, "
        "level in 0; mean open / question, 95 %: 0.917 (0.917–0.917) n=6)"
    )


def test_cautions_tell_what_is_repeated_unnamed_or_of_different_sets() -> None:
    shots = [
        replace(made(style, question, 1.0, parent=parent), prompt_sha256=f"{parent} {question} {style}")
        for style in ("question", "imperative", "bare")
        for question, parent in (("a", "k1"), ("b", "k1"), ("c", "k2"))
        if (style, question) != ("bare", "c")
    ]
    shots = [replace(shot, prompt_sha256="the same" if shot.style == "bare" else shot.prompt_sha256) for shot in shots]
    assert shot_cautions([], shots) == [
        "the styles have different sets of questions (question, imperative: 3; bare: 2): their rows are no comparison, "
        "their pairs are",
        "prompts of bare do not name the question: their layer is that of the question that they are compared with",
        "fewer distinct prompts than shots (bare 1 for 2): replies to the very same text are not independent",
        'no parent was measured again beside its children: "faster" is against figures from before the questions, '
        "perhaps of another sitting",
        "shots about one parent are not independent, and there are 2 parents: all that is pooled, p and pairs needed "
        "included, takes them as if they were; the mean of parents' means does not",
    ]
    alike = shot_cautions([], [shot for shot in shots if shot.style == "question" and shot.parent == "k1"])
    assert len(alike) == 2
    assert "there is 1 parent:" in alike[1]


def test_what_the_compiler_warned_of_is_set_beside_what_came() -> None:
    def right(gain: float, unwarned: int) -> Shot:
        shot = made("question", str(gain), gain)
        return replace(shot, funnel=replace(shot.funnel, unwarned=unwarned))

    comparison = compare_shots([right(1.0, 1), right(1.21, 1), right(0.6, 0), made("question", "w", None)])
    assert comparison.unwarned is not None
    assert comparison.unwarned.mean == pytest.approx(1.1)
    assert shot_conclusions(comparison) == [
        "gain of right children, all styles together, mean and 95 %: 1.100 (0.328–3.693) n=2 without a compiler's "
        "advisory, 0.600 n=1 with one"
    ]
    assert shot_conclusions(compare_shots([right(1.0, 1)])) == []


def test_faster_is_beyond_the_noise_of_child_and_parent() -> None:
    """Each may be off by log 1.05 / log 1.02: a gain of 1.055 is beyond the child's own 4.9 %, and not of both."""
    assert beyond_noise(1.055, 0.0488)
    assert not beyond_noise(1.055, 0.0488, 0.0488)
    assert beyond_noise(1 / 1.08, 0.0488, 0.0488)
    history = History()
    parent = known(history, individual("parent", 0), within("parent", 1.0, 1.05))
    for number, (speed, faster) in enumerate([(1.055, 0), (1.08, 1), (0.9, 0)]):
        child = known(history, individual(f"child {number}", 1, parent), within(f"child {number}", speed, 1.05))
        asked = attempt(number, (parent,), child)
        assert funnel_of([asked], history).faster == faster
        assert question_outcome(history, asked).noise == pytest.approx(math.log(1.05))  # the search's own is as it was


def within(source: str, speed: float, factor: float) -> Evaluation:
    """An evaluation of one scenario whose interval reaches this factor either way."""
    timed = timing("only", speed, low=speed / factor, high=speed * factor)
    return replace(passed(source, {"only": speed}), timings=(timed,))


def test_the_funnel_counts_kernels_that_the_compiler_did_not_warn_of() -> None:
    history = History()
    parent = known(history, individual("parent", 0), passed("parent", {"only": 1.0}))
    clean = replace(passed("clean", {"only": 1.1}), builds=(build(), build()))
    warned = replace(passed("warned", {"only": 0.6}), builds=(build(), build("wgmma is serialized")))
    wrong = replace(failed("wrong", Status.INCORRECT, "o differs"), builds=(build(),))
    broken = failed("broken", Status.COMPILE_ERROR, "no")
    asked = [
        attempt(number, (parent,), known(history, individual(name, 1, parent), evaluation))
        for number, (name, evaluation) in enumerate(
            {"clean": clean, "warned": warned, "wrong": wrong, "broken": broken}.items()
        )
    ]
    assert funnel_of(asked, history) == Funnel(
        questions=4, replies=4, readable=4, new=4, compiled=3, unwarned=2, right=2, faster=1
    )


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
    def told(characters: int, promised: float | None, best: float | None, faster: int = 0) -> Shot:
        shot = made("question", str(characters), None if best is None else 1.0)
        shot = replace(shot, funnel=replace(shot.funnel, faster=faster))
        return replace(shot, reply_characters=characters, promised=promised, best_scenario=best)

    shots = [
        told(900, 0.04, 0.05, 1), told(300, 0.04, 0.03), told(100, None, 0.2, 1), told(200, 0.01, None),
        told(0, None, None),
    ]  # fmt: skip
    (style,) = compare_shots(shots).styles
    assert (style.reply_characters, style.promised, style.some_scenario, style.promised_faster) == (250, 2, 1, 1)
    assert style.median_gain == 1.0


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


def test_the_command_shows_the_pairs_and_says_that_it_was_offline(runs: Path, tmp_path: Path) -> None:
    files = ("--csv", str(tmp_path / "shots.csv"), "--json", str(tmp_path / "shots.json"))
    said = evo("compare", str(runs / "one"), str(runs / "two"), *files)
    assert said.code == 0
    assert said.out.count("offline: phrasing has no effect by construction") == 7  # under each table, and once in words
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
