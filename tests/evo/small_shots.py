"""A single shot in little: its configuration, a run of it, what it asked, and shots made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from small_search import run_part, small_config

from evo.attempt_events import recorded_attempts
from evo.compare.funnel import Funnel
from evo.compare.shots import Shot
from evo.config import Config, SingleShotConfig, StyleKind
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder
from questions.bank import load_bank, shipped_bank_path

STYLES = [StyleKind.question, StyleKind.imperative, StyleKind.prescription, StyleKind.bare]
BANK = load_bank([shipped_bank_path()])


def shot_config(*, questions: int = 3, rng_seed: int = 0, evaluations: int | None = None) -> Config:
    config = small_config(generations=None, evaluations=evaluations)
    return replace(config, rng_seed=rng_seed, single_shot=SingleShotConfig(questions=questions, styles=STYLES))


def shot(root: Path, name: str, config: Config) -> RunFolder:
    folder = create_run_folder(root, name)
    assert run_part(config, folder, bank=BANK).reason == "every question of the single shot was put once"
    return folder


def pairs(folder: RunFolder) -> list[tuple[str, str, str]]:
    """Parent, question and style of each shot, in the order of asking."""
    with read_archive(folder) as archive:
        return [(each.parent_ids[0], each.question_id, each.style) for each in recorded_attempts(archive)]


def prompts(folder: RunFolder) -> Sequence[str]:
    with read_archive(folder) as archive:
        return [each.text for each in sorted(archive.prompts(), key=lambda each: each.number)]


def made(
    style: str, question: str, gain: float | None, *, replied: bool = True, run: str = "one", parent: str = "seed",
    noise: float = 0.0,
) -> Shot:  # fmt: skip
    """A shot of this gain, without a right kernel where that is None; its reply says nothing."""
    right = int(gain is not None)
    funnel = Funnel(questions=1, replies=int(replied), readable=int(replied), unwarned=right, right=right)
    return Shot(
        run=run, parent=parent, question=question, layer="memory", style=style, outcome="child",
        child=f"{question} {style}" if right else "", status="",
        gain=gain, noise=noise, prompt_sha256="", reply_characters=0, promised=None, best_scenario=None, funnel=funnel,
        same_sitting=False,
    )  # fmt: skip
