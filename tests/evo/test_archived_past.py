"""What is recalled from an archive is what would be remembered had the run never stopped."""

from collections.abc import Callable
from typing import Any

import pytest
from small_search import KnobJudge, assemble, run_part, small_config

from evo.archived_past import ArchivedPast
from evo.attempt_events import recorded_attempts
from evo.audits import judged_evaluations
from evo.history import History
from population.archive import open_archive
from population.archive_reader import ArchiveReader, read_archive
from population.run_folder import RunFolder, create_run_folder

ASKED: dict[str, Callable[[History, str], Any]] = {
    "evaluation": History.evaluation,
    "geomean": History.geomean,
    "noise": History.noise,
    "speedups": History.speedups,
    "attempt_of": History.attempt_of,
    "line": History.line,
    "lineage_attempts": History.lineage_attempts,
    "individual": History.individual,
    "audit": History.audit,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Five generations, the last of them made twice."""
    made = create_run_folder(tmp_path_factory.mktemp("past"), "run")
    run_part(small_config(generations=5), made)
    (made.checkpoints / "gen-0005.json").unlink()
    run_part(small_config(generations=5), made)
    return made


def remembered(archive: ArchiveReader, before: int) -> History:
    """All of it at once, as a search that goes on has it in memory."""
    history = History()
    for individual in archive.individuals():
        if individual.birth < before:
            history.add_individual(individual)
    for name, evaluation in judged_evaluations(archive):
        if history.knows(name):
            history.add_evaluation(name, evaluation)
    for attempt in recorded_attempts(archive):
        if attempt.number < before:
            history.add_attempt(attempt)
    return history


@pytest.mark.parametrize("before", [0, 8, 20])
def test_it_is_the_same_whether_recalled_or_remembered(run: RunFolder, before: int) -> None:
    with read_archive(run) as archive:
        whole, recalled = remembered(archive, before), History()
        recalled.recall(ArchivedPast(archive, before=before))
        names = [individual.id for individual in archive.individuals()]
        known = [name for name in names if whole.knows(name)]
        assert [name for name in names if recalled.knows(name)] == known
        assert len(known) >= 1
        for what, ask in ASKED.items():
            assert {name: ask(recalled, name) for name in known} == {name: ask(whole, name) for name in known}, what
        assert [recalled.attempts_of(number) for number in range(7)] == [whole.attempts_of(n) for n in range(7)]
        assert list(recalled.geomeans().items()) == list(whole.geomeans().items())
        assert recalled.statuses() == whole.statuses()
        assert recalled.judged_layers() == whole.judged_layers()
        assert recalled.evaluations() == whole.evaluations()
        assert recalled.seeds() == whole.seeds()


def test_a_resume_reads_the_evaluations_of_its_population_alone(run: RunFolder) -> None:
    asked: list[str] = []
    with open_archive(run) as archive:
        archive._connection.set_trace_callback(asked.append)
        assemble(small_config(generations=5), run, archive, KnobJudge()).state  # noqa: B018  # as a resume does
        archive._connection.set_trace_callback(None)
    assert not [sql for sql in asked if "source FROM candidates WHERE position" in sql]
    assert not [sql for sql in asked if "record FROM evaluations WHERE position" in sql]
    assert not [sql for sql in asked if "record FROM events WHERE position" in sql]
    assert len([sql for sql in asked if sql.startswith("SELECT record FROM evaluations")]) <= 8
