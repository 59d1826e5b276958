"""The same question about the same parent in every style: exactly paired, in random order, whoever answers."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from by_files import ByFiles, by_files, evo
from small_search import SEED, KnobJudge, run_part, small_config, snapshot
from small_shots import BANK, STYLES, pairs, prompts, shot, shot_config

from evo.config import SingleShotConfig, StyleKind
from evo.run_settings import recorded_settings
from fitness.manifest import with_knobs
from population.archive_reader import read_archive
from population.run_folder import create_run_folder
from questions.phrasing import phrase
from questions.question import Style
from questions.sampler import NoQuestionError


def test_every_question_is_put_once_in_every_style_in_random_order(tmp_path: Path) -> None:
    asked = pairs(shot(tmp_path, "run", shot_config()))
    questions = {question for _, question, _ in asked}
    assert len(asked) == len(set(asked)) == 12
    assert len(questions) == 3
    assert {parent for parent, _, _ in asked} == {asked[0][0]}
    assert {(question, style) for _, question, style in asked} == {(q, s.value) for q in questions for s in STYLES}
    assert any(one[1] != other[1] and one[2] != other[2] for one, other in pairwise(asked))  # ordered by neither


def test_the_prompts_of_a_pair_differ_in_the_phrasing_alone(tmp_path: Path) -> None:
    folder = shot(tmp_path, "run", shot_config())
    by_pair: dict[str, dict[str, str]] = {}
    for (_, question, style), prompt in zip(pairs(folder), prompts(folder), strict=True):
        by_pair.setdefault(question, {})[style] = prompt
    for name, texts in by_pair.items():
        question = BANK.by_id(name)
        slots = {"worst_scenario": "b1 h2 s128 d64 full bf16", "worst_speedup": "", "registers": "40"}
        words = {style: phrase(question, Style(style), slots) for style in texts if style != "bare"}
        assert len(set(words.values())) == 3
        assert all(texts[style].count(hint) == 1 for style, hint in words.items())
        lines = {style: text.splitlines() for style, text in texts.items()}
        without = {
            style: [line for line in lines[style] if line in lines["bare"]] for style in texts
        }  # nothing but a style's own lines is missing in the prompt without a hint
        assert without["question"] == without["imperative"] == without["prescription"]
        assert all(len(lines[style]) - len(without[style]) <= 3 for style in words)


def test_the_generators_seed_decides_and_a_runs_own_style_does_not(tmp_path: Path) -> None:
    first = shot(tmp_path, "first", shot_config())
    bare = replace(shot_config(), style=replace(shot_config().style, kind=StyleKind.bare))
    assert pairs(shot(tmp_path, "bare", bare)) == pairs(first)
    other = pairs(shot(tmp_path, "other", shot_config(rng_seed=1)))
    assert {question for _, question, _ in other} != {question for _, question, _ in pairs(first)}


def test_each_seed_that_passes_is_asked_about(tmp_path: Path) -> None:
    source = SEED.read_text(encoding="utf-8")
    kernels = {"good": {"BLOCK_M": 32, "WIDTH": 2}, "bad": {"STAGES": 4, "BLOCK_M": 128}}
    for name, knobs in kernels.items():
        (tmp_path / f"{name}.cu").write_text(with_knobs(source, knobs), encoding="utf-8")
    seeds = [str(SEED), str(tmp_path / "bad.cu"), str(tmp_path / "good.cu")]
    folder = shot(tmp_path, "run", replace(shot_config(questions=2), seeds=seeds))
    with read_archive(folder) as archive:
        passed = {each.id for each in archive.individuals() if each.birth in (-1, -3)}
    asked = pairs(folder)
    assert {parent for parent, _, _ in asked} == passed
    assert [sum(parent == one for parent, _, _ in asked) for one in passed] == [8, 8]


def test_one_that_was_cut_off_ends_as_the_whole_one_does(tmp_path: Path) -> None:
    whole = shot(tmp_path, "whole", shot_config())
    cut = create_run_folder(tmp_path, "cut")
    assert run_part(shot_config(evaluations=4), cut, bank=BANK).reason == "evaluation budget reached: 4 of 4"
    judge = KnobJudge()
    run_part(shot_config(), cut, judge, bank=BANK)
    assert snapshot(cut) == snapshot(whole)
    assert len(judge.judged) == len(snapshot(whole)["evaluations"]) - 4


def test_too_few_questions_are_said_before_any_is_put(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "run")
    with pytest.raises(NoQuestionError, match=r"single_shot\.questions=200: \d+ questions of the bank fit k"):
        run_part(shot_config(questions=200), folder, bank=BANK)
    assert prompts(folder) == []


def test_searches_are_what_they_were_before(tmp_path: Path) -> None:
    """Their settings are compared at every resume, with those of runs that knew of no single shot."""
    folder = create_run_folder(tmp_path, "run")
    run_part(small_config(generations=1), folder)
    with read_archive(folder) as archive:
        assert not [key for key in recorded_settings(archive) if key.startswith(("single_shot", "questions.all"))]
    single = shot(tmp_path, "single", shot_config())
    with read_archive(single) as archive:
        assert recorded_settings(archive)["single_shot.styles"] == [style.value for style in STYLES]


@pytest.fixture
def run(tmp_path: Path) -> ByFiles:
    return by_files(tmp_path)


def test_by_files_it_is_the_same_experiment(run: ByFiles, tmp_path: Path) -> None:
    words = ("experiment=single_shot", "single_shot.questions=2", "single_shot.styles=[question,bare,open]")
    run.begin(*words)
    run.evaluate()
    refused = run.ask("n=3")
    said = "evo: n=3: a single shot puts all its questions at once; leave n out\n"
    assert (refused.code, refused.errors) == (2, said)
    assert "6 prompts wait" in run.ask().out
    assert sum("Make this kernel faster." in prompt for prompt in prompts(run.folder)) == 2
    run.answer()
    run.tell()
    run.evaluate()
    assert "6" in run.tell().out
    assert "the search is over" in run.ask().out or "generation budget reached" in run.ask().out
    table = evo("compare", str(run.folder.path))
    assert table.code == 0
    assert "question / bare" in table.out
    config = shot_config(questions=2)
    styles = [StyleKind.question, StyleKind.bare, StyleKind.open]
    config = replace(config, single_shot=SingleShotConfig(questions=2, styles=styles))
    assert pairs(shot(tmp_path, "evolved", config)) == pairs(run.folder)
