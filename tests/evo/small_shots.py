"""A single shot in little: its configuration, a run of it, and what it asked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from small_search import run_part, small_config

from evo.attempt_events import recorded_attempts
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
