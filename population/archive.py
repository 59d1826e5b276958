"""Writing the archive: append-only, idempotent, by one thread of one process on one host."""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from population.archive_connection import connect, found_version
from population.archive_lock import ArchiveLock, journal_mode
from population.archive_reader import ArchiveReader
from population.archive_schema import (
    CANDIDATES,
    EVALUATIONS,
    EVENTS,
    PROMPTS,
    QUESTIONS,
    REPLIES,
    SPEND,
    Table,
    migrate,
)
from population.atomic_file import strict_json
from population.faults import ArchiveError
from population.individual import Individual, individual_id
from population.records import (
    EvaluationRecord,
    EventRecord,
    PromptRecord,
    QuestionRecord,
    ReplyRecord,
    SpendRecord,
)
from population.run_folder import RunFolder
from population.sqlite_faults import explained

MOUNTS = Path("/proc/mounts")


class Archive(ArchiveReader):
    """The archive with its lock held. `create_archive` and `open_archive` make one.

    Each `record_…` commits by itself, or with its neighbours inside `transaction`. What is committed survives the end
    of the process, kill -9 included, and a loss of power as far as the disk keeps what it reports as written. Recording
    again what is there adds nothing; another content under the same key raises ArchiveError, as does a failing disk.
    Used by the thread that opened it only; other threads hand their results to that one.
    """

    def __init__(self, connection: sqlite3.Connection, run: RunFolder, lock: ArchiveLock) -> None:
        super().__init__(connection, run)
        self._lock = lock

    def close(self) -> None:
        """Ends the writing and lets the next writer in. May be called twice."""
        with suppress(sqlite3.Error):  # where readers are at it, the journal stays as it is
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")  # one file, readable in read-only places too
        super().close()
        self._lock.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is recorded inside is kept, or after an exception or a crash none of it. Does not nest."""
        with explained(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with explained(self._path):
                self._connection.execute("COMMIT")
        finally:
            with explained(self._path):
                self._connection.rollback()  # does nothing after a commit

    def record_individual(self, individual: Individual) -> None:
        """Keeps the individual, without its fitness, and its source in kernels/<id>.cu.

        Its parents must be recorded before it, its id be its source's, and its birth number its own.
        """
        with explained(self._path):
            expected = individual_id(individual.source)
        if individual.id != expected:
            raise ArchiveError(f"individual {individual.id}: expected {expected}, the id of its source")
        for parent in individual.parent_ids:
            self._require_individual(parent, f"parent of {individual.id}")
        self._kernels.write(individual.id, individual.source)
        self._record(CANDIDATES, _candidate_row(individual))

    def record_evaluation(self, record: EvaluationRecord) -> None:
        """Keeps one evaluation of a recorded individual."""
        self._require_individual(record.individual_id, f"evaluation {record.key}")
        self._record(EVALUATIONS, asdict(record))

    def record_prompt(self, record: PromptRecord) -> None:
        """Keeps the prompt of one attempt at one mutation."""
        self._record(PROMPTS, asdict(record))

    def record_reply(self, record: ReplyRecord) -> None:
        """Keeps the reply to one attempt at one mutation, and with it what it cost."""
        self._record(REPLIES, asdict(record))

    def record_question(self, record: QuestionRecord) -> None:
        """Keeps the question that one mutation asked."""
        self._record(QUESTIONS, asdict(record))

    def record_event(self, record: EventRecord) -> None:
        """Keeps an event; without a key every call adds one."""
        self._record(EVENTS, asdict(record))

    def record_spend(self, record: SpendRecord) -> None:
        """Keeps what was spent besides replies."""
        self._record(SPEND, asdict(record))

    def _require_individual(self, individual: str, role: str) -> None:
        if not self.holds(individual):
            raise ArchiveError(f"{self._path}: {role}: {individual} is not recorded; record it first")

    def _record(self, table: Table, row: Mapping[str, object]) -> None:
        with explained(self._path):
            added = self._connection.execute(table.insert, row).rowcount
        if added:
            return
        held = self._one(table, row)
        if held is None:
            raise ArchiveError(f"{self._path}: {table.name}: birth {row['birth']} is another individual's")
        differing = [column for column in table.columns if held[column] != row[column]]
        if differing:
            key = " ".join(str(row[column]) for column in table.key)
            raise ArchiveError(
                f"{self._path}: {table.name} {key}: recorded before with another {', '.join(differing)}; "
                "was the run resumed with other settings?"
            )


def create_archive(run: RunFolder, *, mounts: Path = MOUNTS) -> Archive:
    """A new archive in the folder of a run. Raises ArchiveError where there is one already.

    `mounts` lists the file systems, in the form of /proc/mounts: it decides on the journal.
    """
    with ExitStack() as on_failure:
        lock = on_failure.enter_context(ArchiveLock(run))
        if run.archive.exists():
            raise ArchiveError(f"{run.archive} is there already; resume the run, or name another folder")
        connection = on_failure.enter_context(closing(connect(run, "rwc")))
        _prepare(connection, run, mounts)
        on_failure.pop_all()
    return Archive(connection, run, lock)


def open_archive(run: RunFolder, *, mounts: Path = MOUNTS) -> Archive:
    """The archive of a run, brought to the present schema, to be written on; a beginning that was cut off is finished.

    Raises ArchiveError where another process writes it, and where it is missing, damaged, unfinished or newer.
    """
    with ExitStack() as on_failure:
        lock = on_failure.enter_context(ArchiveLock(run))
        connection = on_failure.enter_context(closing(connect(run, "rw")))
        found_version(connection, run)
        _prepare(connection, run, mounts)
        on_failure.pop_all()
    return Archive(connection, run, lock)


def _prepare(connection: sqlite3.Connection, run: RunFolder, mounts: Path) -> None:
    with explained(run.archive):
        connection.execute(f"PRAGMA journal_mode = {journal_mode(run.path, mounts)}")
        # EXTRA also syncs the folder when a DELETE journal goes; with WAL it means what FULL means.
        connection.execute("PRAGMA synchronous = EXTRA")
        migrate(connection, run.archive)


def _candidate_row(individual: Individual) -> dict[str, object]:
    return {
        "id": individual.id,
        "source_sha256": hashlib.sha256(individual.source.encode("utf-8")).hexdigest(),
        "birth": individual.birth,
        "generation": individual.generation,
        "operator": individual.operator,
        "parent_ids": strict_json(list(individual.parent_ids)),
        "question_id": individual.question_id,
        "source": individual.source,
    }
