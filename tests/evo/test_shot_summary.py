"""Styles and layers of single shots, what the compiler had foretold, and what a reader is warned of."""

from dataclasses import replace

import pytest
from small_shots import made

from evo.compare.shot_summary import compare_shots
from evo.compare.shot_words import shot_cautions, shot_conclusions
from evo.compare.shots import Shot


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
        'right children whose parents were measured in the same sitting: 0 of 8; for the others "faster" is against '
        "figures from before the questions, perhaps of another sitting",
        "shots about one parent are not independent, and there are 2 parents: all that is pooled, p and pairs needed "
        "included, takes them as if they were; the mean of parents' means does not",
    ]
    alike = shot_cautions([], [shot for shot in shots if shot.style == "question" and shot.parent == "k1"])
    assert len(alike) == 2
    assert "there is 1 parent:" in alike[1]
