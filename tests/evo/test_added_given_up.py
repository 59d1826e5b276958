"""A person's kernel whose text a question that was given up led to: it competes, and a resume stays exact."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from by_files import evo
from small_search import KnobJudge, run_part, small_bank, small_config, snapshot

from evo.added_kernels import AddedKernel, add_kernel, births_after, kernels_taken_in
from evo.archived_past import ArchivedPast
from evo.stop import StopSearch
from fitness.evaluation import Evaluation
from population.archive_reader import read_archive
from population.checkpoint import load_newest
from population.individual import Individual
from population.run_folder import RunFolder, create_run_folder
from questions.bank import Bank


class JudgesSome(KnobJudge):
    """Ends the search once it has judged so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        for place, source in enumerate(sources):
            if len(self.judged) == self._most:
                raise StopSearch("a test's own reason")
            super().evaluate_all([source], on_done and (lambda _, each, at=place: on_done(at, each)))
        return []


@dataclass(frozen=True, kw_only=True)
class AskedAnew:
    """A run whose second generation was asked anew under a smaller bank, and the children that it had before that."""

    folder: RunFolder
    bank: Bank
    given_up: tuple[Individual, ...]  # by their numbers; the first is judged, the others are not

    def go_on(self, folder: RunFolder, generations: int, judge: KnobJudge | None = None) -> str:
        return run_part(small_config(generations=generations), folder, judge, bank=self.bank).reason


@pytest.fixture
def run(tmp_path: Path) -> AskedAnew:
    folder = create_run_folder(tmp_path, "run")
    run_part(small_config(generations=1), folder)
    run_part(small_config(generations=2), folder, JudgesSome(1))
    with read_archive(folder) as archive:
        gone = archive.question(4)
        children = [each for each in archive.individuals() if each.generation == 2]
    assert gone is not None
    bank = Bank(questions=tuple(each for each in small_bank() if each.id != gone.question_id))
    run_part(small_config(generations=2), folder, bank=bank)
    made = {attempt.child_id for attempt in snapshot(folder)["attempts"]}
    given_up = tuple(each for each in children if each.id not in made)
    return AskedAnew(folder=folder, bank=bank, given_up=given_up)


def judged(folder: RunFolder) -> list[str]:
    with read_archive(folder) as archive:
        return [each.individual_id for each in archive.scores()]


def newcomers(folder: RunFolder) -> int:
    """How many candidates came into the pool with the last generation."""
    loaded = load_newest(folder.checkpoints)
    assert loaded is not None
    return int(loaded.checkpoint.logbook[-1]["new"])


def test_one_that_was_measured_is_taken_in_and_its_evaluation_used_again(run: AskedAnew) -> None:
    first = run.given_up[0]
    assert first.id in judged(run.folder)
    add_kernel(run.folder, AddedKernel(source=first.source))
    judge = KnobJudge()
    run.go_on(run.folder, 3, judge)
    with read_archive(run.folder) as archive:
        assert [taken.birth for taken in kernels_taken_in(archive)] == [-2]
    assert first.source not in judge.judged
    assert judged(run.folder).count(first.id) == 1
    children = [each for each in snapshot(run.folder)["attempts"] if (each.generation, each.outcome) == (3, "child")]
    assert newcomers(run.folder) == len(children) + 1
    add_kernel(run.folder, AddedKernel(source=first.source))
    run.go_on(run.folder, 4)
    with read_archive(run.folder) as archive:
        assert [taken.birth for taken in kernels_taken_in(archive)] == [-2, None]


def test_the_command_puts_it_in(run: AskedAnew, tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(run.given_up[0].source, encoding="utf-8")
    add = ("kernels", "add", str(run.folder.path), str(path))
    assert "is judged beside the children of the run's next generation" in evo(*add).out
    assert "waits already, without parents, as " in evo(*add).out
    run.go_on(run.folder, 3)
    assert evo(*add).out == f"{run.given_up[0].id} was judged before: nothing new\n"


@pytest.mark.parametrize("which", [0, 1])
def test_until_its_generation_is_made_again_a_resume_does_not_know_of_it(
    run: AskedAnew, tmp_path: Path, which: int
) -> None:
    kernel = run.given_up[which]
    add_kernel(run.folder, AddedKernel(source=kernel.source))
    cut = RunFolder(shutil.copytree(run.folder.path, tmp_path / "cut"))
    assert run.go_on(run.folder, 4).startswith("generation budget")
    assert run.go_on(cut, 4, JudgesSome(1)) == "a test's own reason"
    assert kernel.id in judged(cut)
    with read_archive(cut) as archive:
        assert births_after(archive, 2) == {kernel.birth}
        assert births_after(archive, 3) == frozenset()
        before = ArchivedPast(archive, before=12, without=births_after(archive, 2))
        assert kernel.id not in before.geomeans
        assert before.individual(kernel.id) is None
    assert run.go_on(cut, 4).startswith("generation budget")
    assert snapshot(cut) == snapshot(run.folder)
