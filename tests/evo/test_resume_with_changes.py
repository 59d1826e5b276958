"""A generation that was interrupted, and is asked otherwise when it is made again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_search import KnobJudge, run_part, small_bank, small_config, snapshot

from evo.config import Config
from evo.stop import StopSearch
from fitness.evaluation import Evaluation
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder
from questions.bank import Bank


class StopsInTheSecondGeneration(KnobJudge):
    """Judges the seed and the first generation, and no more."""

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        if len(self.judged) > 2:
            raise StopSearch("a test's own reason")
        return super().evaluate_all(sources, on_done)


def interrupted_run(root: Path, config: Config | None = None) -> RunFolder:
    folder = create_run_folder(root, "run")
    stop = run_part(config or small_config(generations=3), folder, StopsInTheSecondGeneration())
    assert stop.reason == "a test's own reason"
    return folder


def bank_without(question_id: str) -> Bank:
    return Bank(questions=tuple(question for question in small_bank() if question.id != question_id))


def asked(folder: RunFolder) -> dict[int, str]:
    with read_archive(folder) as archive:
        return {question.number: question.question_id for question in archive.questions()}


def test_a_question_that_left_the_bank_is_replaced_under_a_new_number(tmp_path: Path) -> None:
    folder = interrupted_run(tmp_path)
    before = asked(folder)
    begun = [number for number in before if number >= 4]
    assert begun == [4, 5, 6, 7]
    gone = before[begun[0]]
    stop = run_part(small_config(generations=3), folder, bank=bank_without(gone))
    assert stop.reason == "generation budget reached: 3 of 3"
    after = asked(folder)
    assert {number: after[number] for number in before} == before
    assert gone not in [after[number] for number in after if number > max(before)]
    attempts = snapshot(folder)["attempts"]
    assert [attempt.number for attempt in attempts if attempt.generation == 2] == [8, 9, 10, 11]
    assert [attempt.number for attempt in attempts if attempt.generation == 3] == [12, 13, 14, 15]


@pytest.mark.parametrize("again", [1, 2])
def test_the_renumbered_run_can_be_resumed_as_any_other(tmp_path: Path, again: int) -> None:
    folder = interrupted_run(tmp_path)
    bank = bank_without(asked(folder)[4])
    run_part(small_config(generations=3), folder, bank=bank)
    for generations in range(4, 4 + again):
        assert run_part(small_config(generations=generations), folder, bank=bank).reason.startswith("generation budget")
    numbers = [attempt.number for attempt in snapshot(folder)["attempts"]]
    assert numbers == sorted(set(numbers))
    assert snapshot(folder)["checkpoint"]["counters"]["next_birth"] == max(numbers) + 1


def test_what_was_asked_stays_as_it_was_under_another_template(tmp_path: Path) -> None:
    template = tmp_path / "template.md"
    template.write_text("$contract\n\n$answer_format\n\n$parents\n\n$hint\n", encoding="utf-8")
    config = small_config(generations=3)
    config = replace(config, style=replace(config.style, template=str(template)))
    folder = interrupted_run(tmp_path, config)
    before = snapshot(folder)["prompts"]
    template.write_text("Once more.\n\n" + template.read_text(encoding="utf-8"), encoding="utf-8")
    run_part(config, folder)
    after = snapshot(folder)["prompts"]
    assert after[: len(before)] == before
    assert [number for number, _, text in after if text.startswith("Once more.")] == list(range(8, 12))


def test_without_a_change_the_numbers_stay(tmp_path: Path) -> None:
    folder = interrupted_run(tmp_path)
    before = asked(folder)
    run_part(small_config(generations=3), folder)
    assert sorted(asked(folder)) == list(range(12))
    assert {number: asked(folder)[number] for number in before} == before
