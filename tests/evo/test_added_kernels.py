"""Kernels that people put to a run: judged beside its next generation's children, whenever it is killed or replayed."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import OPTIONS, ByFiles, by_files, judge, left_behind, names
from killed_added import FIRST, SECOND
from killed_runs import mortal_config
from rich.console import Console
from small_search import MACHINE, SOURCE, KnobJudge, run_part, small_config, snapshot

from evo import api
from evo.added_kernels import (
    AddedKernel,
    AddedKernels,
    add_kernel,
    births_after,
    kernels_taken_in,
    read_kernel,
)
from evo.dropped_files import dropped_files
from evo.history import History
from evo.measured import write_measured
from evo.pending import pending_sources
from evo.question_records import question_rows
from evo.run import run_search
from evo.settings import compose_config
from evo.stop import StopSearch
from fitness.backends.recorded import export_table
from fitness.evaluation import Evaluation
from fitness.manifest import with_knobs
from population.archive import create_archive
from population.archive_reader import read_archive
from population.checkpoint import load_newest
from population.individual import Individual, individual_id
from population.run_folder import RunFolder, create_run_folder

ROOT = individual_id(SOURCE)
BEST = AddedKernel(
    source=with_knobs(SOURCE, {"STAGES": 2, "WIDTH": 4, "BLOCK_M": 64}) + "// mine\n", parent_ids=(ROOT,)
)


class InterruptedJudge(KnobJudge):
    """Ends the search once it would judge more than so many."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        if len(self.judged) + len(sources) > self._after:
            raise StopSearch("interrupted")
        return super().evaluate_all(sources, on_done)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def births(folder: RunFolder) -> list[tuple[str, int, int, str, tuple[str, ...]]]:
    with read_archive(folder) as archive:
        made = [(each.id, each.birth, each.generation, each.operator, each.parent_ids) for each in archive.births()]
    return [each for each in made if each[3] == "hand"]


def members(folder: RunFolder) -> set[str]:
    loaded = load_newest(folder.checkpoints)
    assert loaded is not None
    return {member.id for member in loaded.checkpoint.population}


def test_it_is_judged_beside_the_next_generations_children_and_competes(folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    add_kernel(folder, BEST)
    judge_ = KnobJudge()
    run_part(small_config(generations=2), folder, judge_)
    assert births(folder) == [(BEST.id, -2, 2, "hand", (ROOT,))]
    assert individual_id(judge_.judged[0]) == BEST.id
    assert BEST.id in members(folder)
    with read_archive(folder) as archive:
        record = archive.evaluation_json(BEST.id)
        assert record is not None
        assert json.loads(record)["status"] == "PASSED"
        assert archive.evaluation_count() == len(list(archive.births()))
        assert archive.seed_ids() == {ROOT}
        assert archive.best_geomeans()[1] == pytest.approx(0.6480740698)
    run_part(small_config(generations=3), folder)
    assert BEST.id in {parent for each in snapshot(folder)["attempts"] for parent in each.parent_ids}


def test_questions_keep_their_numbers_and_no_question_gets_credit(tmp_path: Path) -> None:
    runs = [create_run_folder(tmp_path, name) for name in ("without", "with")]
    worthless = AddedKernel(source=with_knobs(SOURCE, {"UNROLL": 8, "WIDTH": 4}) + "// wrong\n")
    add_kernel(runs[1], worthless)
    for run in runs:
        run_part(small_config(generations=2), run)
    without, with_ = map(snapshot, runs)
    assert births(runs[1]) == [(worthless.id, -2, 1, "hand", ())]
    assert [each for each in with_["candidates"] if each.operator != "hand"] == without["candidates"]
    assert [each for each in with_["evaluations"] if each[0] != worthless.id] == without["evaluations"]
    for same in ("attempts", "prompts", "questions", "replies"):
        assert with_[same] == without[same]
    assert with_["checkpoint"]["sampler"] == without["checkpoint"]["sampler"]
    assert with_["checkpoint"]["counters"]["next_birth"] == 8
    rows = []
    for run in runs:
        with read_archive(run) as archive:
            rows.append(question_rows(archive))
    assert rows[0] == rows[1]


def test_its_evaluation_counts(folder: RunFolder) -> None:
    add_kernel(folder, FIRST)
    stop = run_part(small_config(generations=None, evaluations=2), folder)
    assert stop.reason == "evaluation budget reached: 2 of 2"
    assert [name for name, _ in snapshot(folder)["evaluations"]] == [ROOT, FIRST.id]


def test_an_interrupted_generation_is_made_again_with_it_and_with_no_other(tmp_path: Path) -> None:
    runs = [create_run_folder(tmp_path, name) for name in ("whole", "interrupted")]
    for run in runs:
        run_part(small_config(generations=1), run)
        add_kernel(run, FIRST)
    run_part(small_config(generations=3), runs[0])
    assert run_part(small_config(generations=3), runs[1], InterruptedJudge(after=1)).reason == "interrupted"
    assert births(runs[1]) == [(FIRST.id, -2, 2, "hand", FIRST.parent_ids)]
    late = add_kernel(runs[1], BEST)  # after the interruption: too late for this generation
    run_part(small_config(generations=2), runs[1])
    assert [name for name, *_ in births(runs[1])] == [FIRST.id]
    late.unlink()
    run_part(small_config(generations=3), runs[1])
    assert snapshot(runs[1]) == snapshot(runs[0])


def test_runs_killed_anywhere_end_as_the_whole_one_does(tmp_path: Path) -> None:
    program = Path(__file__).parent / "killed_added.py"
    said = subprocess.run([sys.executable, str(program), str(tmp_path), "20"], capture_output=True, check=True)
    killed: dict[str, str] = json.loads(said.stdout)
    assert len(killed) >= 25
    whole = RunFolder(tmp_path / "whole")
    assert [each[:2] for each in births(whole)] == [(FIRST.id, -2), (SECOND.id, -3)]
    wanted = snapshot(whole)
    for moment, kind in killed.items():
        folder = RunFolder(tmp_path / f"killed-{moment}")
        assert run_part(mortal_config(0), folder).reason == "generation budget reached: 3 of 3"
        found = snapshot(folder)
        differing = [key for key in wanted if wanted[key] != found[key]]
        assert differing == [], f"killed at moment {moment}, {kind}"
        with read_archive(folder) as archive:
            assert [taken.birth for taken in kernels_taken_in(archive)] == [-2, -3, None]
            assert births_after(archive, 0) == {-2, -3}
            assert births_after(archive, 1) == frozenset()


def test_a_text_that_was_judged_is_noted_and_makes_no_individual(folder: RunFolder) -> None:
    run_part(small_config(generations=1), folder)
    seen = snapshot(folder)["candidates"]
    add_kernel(folder, AddedKernel(source=SOURCE.replace("\n", "\r\n")))
    add_kernel(folder, FIRST)
    add_kernel(folder, FIRST)
    run_part(small_config(generations=2), folder)
    with read_archive(folder) as archive:
        assert [taken.birth for taken in kernels_taken_in(archive)] == [None, -2, None]
    assert [each for each in snapshot(folder)["candidates"] if each.generation < 2] == seen
    assert births(folder) == [(FIRST.id, -2, 2, "hand", FIRST.parent_ids)]


def test_what_cannot_be_taken_in_is_told_of_and_passed_over(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.added.mkdir()
    contents = ('{"source": "', "[1]", '{"source": "x", "parents": [1]}', '{"source": "\\ud800", "parents": []}')
    for number, content in enumerate(contents):
        (folder.added / f"0-{number}.json").write_text(content, encoding="utf-8")
    (folder.added / "9-left.json.77.tmp").write_text("{", encoding="utf-8")
    add_kernel(folder, replace(FIRST, parent_ids=("k000000000000",)))
    add_kernel(folder, SECOND)
    caplog.set_level("INFO")
    run_part(small_config(generations=1), folder)
    told = [record.getMessage() for record in caplog.records if "is not taken in" in record.getMessage()]
    assert [Path(line.partition(" ")[0]).name[:3] for line in told[:4]] == ["0-0", "0-1", "0-2", "0-3"]
    assert "expected a source and a list of parents" in told[1]
    assert told[4].endswith("its parent k000000000000 is no kernel of this run")
    assert told[5].endswith(f"its parent {FIRST.id} is no kernel of this run")
    assert births(folder) == []


def test_a_file_gives_back_what_was_put_in(folder: RunFolder) -> None:
    path = add_kernel(folder, SECOND)
    assert read_kernel(path) == SECOND
    assert dropped_files(folder.added) == [path]


def test_of_a_question_that_was_given_up_its_parent_and_its_text_are_taken_in(folder: RunFolder) -> None:
    """Such a child is in the archive, but neither judged nor remembered."""
    given_up = Individual.from_source(FIRST.source, birth=7, generation=1, operator="mutate", parent_ids=(ROOT,))
    history, notes = History(), list[str]()
    with create_archive(folder) as archive:
        archive.record_individual(Individual.from_source(SOURCE, birth=-1, generation=0, operator="seed"))
        archive.record_individual(given_up)
        added = AddedKernels(folder=folder.added, archive=archive, history=history, note=notes.append)
        add_kernel(folder, AddedKernel(source=SECOND.source, parent_ids=(FIRST.id,)))
        [child] = added.take_in(2, number=8)
        assert history.individual(FIRST.id) == given_up
        history.add_individual(archive.individual(ROOT))
        assert [each.id for each in history.line(child.id)] == [SECOND.id, FIRST.id, ROOT]
        add_kernel(folder, FIRST)
        assert added.take_in(3, number=12) == [given_up]
        assert added.take_in(2, number=8) == [child]
    assert notes[1] == f"{FIRST.id}, put in by hand, is judged beside the children of generation 3"


def test_by_files_it_waits_to_be_measured_while_replies_are_out(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.whole_run(1)
    add_kernel(run.folder, BEST)
    said = run.ask("n=3")
    assert f"note: {BEST.id}, put in by hand, is judged beside the children of generation 2" in said.out
    assert names(run.folder.outbox) == ["0003.md", "0004.md", "0005.md"]
    assert names(run.folder.pending) == ["job.json", f"{BEST.id}.cu"]
    measure(run)
    assert "put in by hand" not in run.ask().out
    assert names(run.folder.pending) == ["job.json"]
    run.answer()
    run.tell()
    assert BEST.id not in pending_sources(run.folder.pending)[0]
    measure(run)
    said = run.tell()
    assert f"hand {BEST.id}  " in said.out
    assert births(run.folder) == [(BEST.id, -2, 2, "hand", (ROOT,))]
    assert BEST.id in members(run.folder)


def test_a_program_is_told_of_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = by_files(tmp_path)
    run.whole_run(1)
    add_kernel(run.folder, BEST)
    strange = add_kernel(run.folder, replace(FIRST, parent_ids=("k000000000000",)))
    prompts = api.ask(run.folder.path, n=1)
    assert [prompt.number for prompt in prompts] == [3]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        f"{BEST.id}, put in by hand, is judged beside the children of generation 2",
        f"{strange} is not taken in: its parent k000000000000 is no kernel of this run",
    ]
    assert api.tell(run.folder.path, {}).notes == ()


def test_by_files_it_is_the_run_that_evolve_makes(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.begin("n=3")
    add_kernel(run.folder, BEST)
    measure(run)
    for _ in range(2):
        run.ask("n=3")
        run.answer()
        run.tell()
        measure(run)
        run.tell()
    table = tmp_path / "more.jsonl"
    export_table([judge(source) for source in sources_of(run.folder)], table)
    whole = create_run_folder(tmp_path, "evolved")
    add_kernel(whole, BEST)
    words = (*OPTIONS, "backend=recorded", f"backend.table='{table}'", "stop.generations=2")
    run_search(compose_config(words), MACHINE, whole, Console(file=io.StringIO()))
    wanted, found = left_behind(whole), left_behind(run.folder)
    assert births(whole) == births(run.folder) == [(BEST.id, -2, 1, "hand", (ROOT,))]
    for name in ("candidates", "evaluations", "prompts", "questions", "replies", "attempts", "checkpoint"):
        assert found[name] == wanted[name], name


def sources_of(folder: RunFolder) -> list[str]:
    with read_archive(folder) as archive:
        return [individual.source for individual in archive.individuals()]


def measure(run: ByFiles) -> None:
    """What `evo evaluate` does, also for a kernel that no table holds."""
    for source in pending_sources(run.folder.pending)[0].values():
        write_measured(run.folder.measured, source, judge(source))
