"""Reading the archive: what the loop, reports and statistics ask of it."""

import json
import logging
import math
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Self, TypeVar

from population.archive_connection import connect, found_version
from population.archive_copy import COPY_BYTES, migrated_copy
from population.archive_rows import birth_of, individual_of, reply_of
from population.archive_schema import (
    BIRTHS,
    CANDIDATES,
    EVALUATIONS,
    EVENTS,
    INDEXED_PATHS,
    MIGRATIONS,
    PROMPTS,
    QUESTIONS,
    REPLIES,
    SCORES,
    SPEND,
    Table,
)
from population.faults import ArchiveError
from population.individual import Individual
from population.kernel_files import KernelFiles
from population.records import (
    Birth,
    EvaluationRecord,
    EventRecord,
    PromptRecord,
    QuestionRecord,
    ReplyRecord,
    Score,
    SpendRecord,
)
from population.run_folder import RunFolder
from population.sqlite_faults import explained

logger = logging.getLogger(__name__)

Row = TypeVar("Row")

PAGE_ROWS = 256  # an iterator holds no lock and no more than this many rows between two steps
CLOCK_S = 0.005  # SQLite's clock gives milliseconds, so a row may seem older than the file written just before it


class ArchiveReader:
    """Everything that can be asked of an archive, beside a writer or without one.

    Iterators give rows in the order in which they were recorded, rows recorded meanwhile included, and read a page at
    a time. Used by the thread that opened it only. Every method raises ArchiveError where the file fails.
    """

    def __init__(self, connection: sqlite3.Connection, run: RunFolder) -> None:
        connection.row_factory = sqlite3.Row
        self._connection = connection
        self._path = run.archive
        self._kernels = KernelFiles(run.kernels)

    def close(self) -> None:
        """Ends the reading. May be called twice."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def holds(self, individual_id: str) -> bool:
        """Whether an individual with this id is recorded."""
        return bool(self._query("SELECT 1 FROM candidates WHERE id = :id", {"id": individual_id}))

    def individual(self, individual_id: str) -> Individual:
        """The individual, its fitness empty: fitness is the evaluations' and the checkpoint's.

        A missing or altered kernels/<id>.cu is told in the log. Raises ArchiveError for an id that is not recorded.
        """
        individual = self.find_individual(individual_id)
        if individual is None:
            raise ArchiveError(f"{self._path}: no individual {individual_id}; was the checkpoint made in another run?")
        if fault := self._kernels.fault(individual.id, individual.source):
            logger.warning("%s", fault)
        return individual

    def find_individual(self, individual_id: str) -> Individual | None:
        """The same, without a look at the file; None for an id that is not recorded."""
        row = self._one(CANDIDATES, {"id": individual_id})
        return None if row is None else individual_of(row, self._path)

    def seed_ids(self) -> frozenset[str]:
        """The ids of the individuals that the run began with."""
        sql = "SELECT id FROM candidates WHERE birth < 0 AND operator = 'seed'"
        return frozenset(row["id"] for row in self._query(sql, {}))

    def individuals(self) -> Iterator[Individual]:
        """All individuals with their sources, their fitness empty."""
        return self._rows(CANDIDATES, lambda row: individual_of(row, self._path))

    def births(self) -> Iterator[Birth]:
        """All individuals without their sources."""
        return self._rows(BIRTHS, birth_of)

    def kernel_faults(self) -> Iterator[str]:
        """One message for each kernels/<id>.cu that is missing or altered.

        A file that was not written since its row was recorded holds what it held then, and is not read.
        """
        written = self._kernels.times()
        for name, recorded_at in self._query("SELECT id, recorded_at FROM candidates ORDER BY position", {}):
            if written.get(name, math.inf) > recorded_at + CLOCK_S:
                [(source,)] = self._query("SELECT source FROM candidates WHERE id = :id", {"id": name})
                if fault := self._kernels.fault(name, source):
                    yield fault

    def evaluation_json(self, individual_id: str, key: str | None = None) -> str | None:
        """The record of an individual's evaluation under `key`, or its latest one; None where there is none."""
        rows = self._query(
            "SELECT record FROM evaluations WHERE individual_id = :id AND (:key IS NULL OR key = :key) "
            "ORDER BY position DESC LIMIT 1",
            {"id": individual_id, "key": key},
        )
        return str(rows[0]["record"]) if rows else None

    def evaluations(self) -> Iterator[EvaluationRecord]:
        """All evaluations."""
        return self._rows(EVALUATIONS, lambda row: EvaluationRecord(**row))

    def scores(self) -> Iterator[Score]:
        """All evaluations without their records."""
        return self._rows(SCORES, lambda row: Score(**row))

    def geomeans(self, *, before_birth: int) -> list[tuple[str, float | None]]:
        """Individual and geomean of each evaluation of those born before a number; from an index alone."""
        rows = self._query(
            "SELECT individual_id, geomean FROM evaluations INDEXED BY evaluations_by_geomean "
            "WHERE individual_id NOT IN (SELECT id FROM candidates WHERE birth >= :birth) ORDER BY position",
            {"birth": before_birth},
        )
        return [(row[0], row[1]) for row in rows]

    def ids_born(self, births: Collection[int]) -> frozenset[str]:
        """The ids of the individuals of these numbers."""
        sql = "SELECT id FROM candidates WHERE birth IN (SELECT value FROM json_each(:births))"
        return frozenset(row["id"] for row in self._query(sql, {"births": json.dumps(sorted(births))}))

    def evaluation_count(self) -> int:
        """How many evaluations are recorded."""
        return sum(self.statuses().values())

    def best_geomeans(self, without: Collection[str] = ()) -> tuple[float | None, float | None]:
        """The greatest geomean of all but these individuals, and that of the seeds; each None where nothing passed."""
        row = self._query(
            "SELECT max(geomean), max(geomean) FILTER (WHERE individual_id IN "
            "(SELECT id FROM candidates WHERE birth < 0 AND operator = 'seed')) "
            "FROM evaluations WHERE individual_id NOT IN (SELECT value FROM json_each(:without))",
            {"without": json.dumps(list(without))},
        )[0]
        return row[0], row[1]

    def statuses(self) -> dict[str, int]:
        """How many evaluations had each status."""
        rows = self._query("SELECT status, count(*) AS number FROM evaluations GROUP BY status ORDER BY status", {})
        return {row["status"]: row["number"] for row in rows}

    def prompt(self, number: int, attempt: int) -> PromptRecord | None:
        """The prompt of one attempt at one mutation; None where none is recorded."""
        row = self._one(PROMPTS, {"number": number, "attempt": attempt})
        return PromptRecord(**row) if row else None

    def prompts(self) -> Iterator[PromptRecord]:
        """All prompts."""
        return self._rows(PROMPTS, lambda row: PromptRecord(**row))

    def reply(self, number: int, attempt: int) -> ReplyRecord | None:
        """The reply to one attempt at one mutation; None where none is recorded."""
        row = self._one(REPLIES, {"number": number, "attempt": attempt})
        return reply_of(row) if row else None

    def replies(self) -> Iterator[ReplyRecord]:
        """All replies."""
        return self._rows(REPLIES, reply_of)

    def question(self, number: int) -> QuestionRecord | None:
        """The question that a mutation asked; None where none is recorded."""
        row = self._one(QUESTIONS, {"number": number})
        return QuestionRecord(**row) if row else None

    def next_question_number(self) -> int:
        """The number after the greatest that a question was asked under; 0 where none was."""
        rows = self._query(f"SELECT max(number) AS last FROM {QUESTIONS.name}", {})  # noqa: S608  # a name of ours
        return 0 if rows[0]["last"] is None else int(rows[0]["last"]) + 1

    def questions(self) -> Iterator[QuestionRecord]:
        """All questions asked."""
        return self._rows(QUESTIONS, lambda row: QuestionRecord(**row))

    def events(self) -> Iterator[EventRecord]:
        """All events."""
        return self._rows(EVENTS, lambda row: EventRecord(**row))

    def events_of(self, *kinds: str) -> list[EventRecord]:
        """All events of these kinds."""
        columns, chosen = ", ".join(EVENTS.columns), "kind IN (SELECT value FROM json_each(:kinds))"
        rows = self._query(
            f"SELECT {columns} FROM events WHERE {chosen} ORDER BY position",  # noqa: S608  # our own words
            {"kinds": json.dumps(kinds)},
        )
        return [EventRecord(**row) for row in rows]

    def records_where(self, kind: str, path: str, value: str | int) -> list[str]:
        """The JSON records of the events of a kind that hold `value` at one of INDEXED_PATHS."""
        rows = self._query(
            f"SELECT record FROM events WHERE kind = :kind AND json_extract(record, '$.{_indexed(path)}') = :value "  # noqa: S608
            "ORDER BY position",
            {"kind": kind, "value": value},
        )
        return [row[0] for row in rows]

    def repeated(self, kind: str, path: str) -> frozenset[int]:
        """The whole numbers that more than one event of a kind holds at one of INDEXED_PATHS."""
        value = f"json_extract(record, '$.{_indexed(path)}')"
        rows = self._query(
            f"SELECT {value} AS value FROM events WHERE kind = :kind AND {value} IS NOT NULL "  # noqa: S608  # our own words
            f"GROUP BY {value} HAVING count(*) > 1",
            {"kind": kind},
        )
        return frozenset(int(row["value"]) for row in rows)

    def event(self, kind: str, key: str) -> EventRecord | None:
        """The event of a kind under a key; None where none is recorded."""
        row = self._one(EVENTS, {"kind": kind, "key": key})
        return EventRecord(**row) if row else None

    def spend(self) -> Iterator[SpendRecord]:
        """All that was spent besides replies."""
        return self._rows(SPEND, lambda row: SpendRecord(**row))

    def spend_so_far(self) -> dict[str, float]:
        """The sum of each kind: prompt_tokens, completion_tokens and cost_usd, replies included, then the others."""
        kinds = ("prompt_tokens", "completion_tokens", "cost_usd")
        sums = self._query("SELECT sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM replies", {})
        spent: dict[str, float] = {kind: amount or 0 for kind, amount in zip(kinds, sums[0], strict=True)}
        for row in self._query("SELECT kind, sum(amount) AS amount FROM spend GROUP BY kind ORDER BY kind", {}):
            spent[row["kind"]] = spent.get(row["kind"], 0) + row["amount"]
        return spent

    def _one(self, table: Table, key: Mapping[str, object]) -> dict[str, Any] | None:
        rows = self._query(table.select_one, key)
        return dict(rows[0]) if rows else None

    def _rows(self, table: Table, build: Callable[[dict[str, Any]], Row]) -> Iterator[Row]:
        position = 0
        while page := self._query(table.select_page, {"position": position, "limit": PAGE_ROWS}):
            for row in page:
                yield build({column: row[column] for column in table.columns})
            position = page[-1]["position"]

    def _query(self, sql: str, values: Mapping[str, object]) -> list[sqlite3.Row]:
        with explained(self._path):
            return self._connection.execute(sql, values).fetchall()


def read_archive(run: RunFolder, *, copy_bytes: int = COPY_BYTES) -> ArchiveReader:
    """The archive of a run for reading only, without a lock, beside a writer or after one.

    One of an older version is read as if it had been migrated: a copy in memory is, and the file stays as it was.
    Raises ArchiveError where it is missing, damaged, unfinished, newer, or older and too large to be copied.
    """
    connection = connect(run, "ro")
    try:
        version = found_version(connection, run)
        if version == 0:
            raise ArchiveError(f"{run.archive}: empty: nothing is recorded there; leave it out until its run has begun")
        if version == len(MIGRATIONS):
            return ArchiveReader(connection, run)
        reader = ArchiveReader(migrated_copy(connection, run.archive, at_most=copy_bytes), run)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return reader


def _indexed(path: str) -> str:
    if path not in INDEXED_PATHS:
        raise ValueError(f"events by {path}: no index; expected one of {', '.join(INDEXED_PATHS)}")
    return path
