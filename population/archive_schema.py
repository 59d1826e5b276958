"""The tables of the archive, and how an older archive becomes a present one."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from population.faults import ArchiveError
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


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, or some of its columns, as SQL. Names are this module's own, so building text of them is safe."""

    name: str
    key: tuple[str, ...]  # what makes two rows the same row
    columns: tuple[str, ...]

    @property
    def insert(self) -> str:
        """Adds a row given by name; adds nothing where a unique column is taken."""
        marks = ", ".join(f":{column}" for column in self.columns)
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608

    @property
    def select_one(self) -> str:
        """The row with a key given by name."""
        condition = " AND ".join(f"{column} = :{column}" for column in self.key)
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {condition}"  # noqa: S608

    @property
    def select_page(self) -> str:
        """The first `:limit` rows after `:position`, oldest first."""
        columns = ", ".join(self.columns)
        return f"SELECT position, {columns} FROM {self.name} WHERE position > :position ORDER BY position LIMIT :limit"  # noqa: S608


def _table(name: str, key: tuple[str, ...], record: type, *more: str) -> Table:
    return Table(name=name, key=key, columns=(*(each.name for each in fields(record)), *more))


BIRTHS = _table("candidates", ("id",), Birth)
CANDIDATES = _table("candidates", ("id",), Birth, "source")
EVALUATIONS = _table("evaluations", ("individual_id", "key"), EvaluationRecord)
SCORES = _table("evaluations", ("individual_id", "key"), Score)
PROMPTS = _table("prompts", ("number", "attempt"), PromptRecord)
REPLIES = _table("replies", ("number", "attempt"), ReplyRecord)
QUESTIONS = _table("questions", ("number",), QuestionRecord)
EVENTS = _table("events", ("kind", "key"), EventRecord)
SPEND = _table("spend", ("key", "kind"), SpendRecord)

_CLOCK = "recorded_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)"  # seconds since 1970, UTC

# Long texts stand last in their rows: SQLite reads the columns before them without touching their pages.
_VERSION_1 = (
    f"""CREATE TABLE candidates (
        position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, source_sha256 TEXT NOT NULL,
        birth INTEGER NOT NULL UNIQUE, generation INTEGER NOT NULL, operator TEXT NOT NULL,
        parent_ids TEXT NOT NULL, question_id TEXT, {_CLOCK}, source TEXT NOT NULL)""",
    f"""CREATE TABLE evaluations (
        position INTEGER PRIMARY KEY, individual_id TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL,
        geomean REAL, {_CLOCK}, record TEXT NOT NULL, UNIQUE (individual_id, key))""",
    "CREATE INDEX evaluations_by_status ON evaluations (status)",
    f"""CREATE TABLE prompts (
        position INTEGER PRIMARY KEY, number INTEGER NOT NULL, attempt INTEGER NOT NULL, {_CLOCK},
        text TEXT NOT NULL, UNIQUE (number, attempt))""",
    f"""CREATE TABLE replies (
        position INTEGER PRIMARY KEY, number INTEGER NOT NULL, attempt INTEGER NOT NULL, model TEXT NOT NULL,
        finish_reason TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL, estimated INTEGER NOT NULL, {_CLOCK}, text TEXT NOT NULL, UNIQUE (number, attempt))""",
    "CREATE INDEX replies_by_cost ON replies (prompt_tokens, completion_tokens, cost_usd)",  # holds all that sums read
    f"""CREATE TABLE questions (
        position INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, question_id TEXT NOT NULL, moment TEXT NOT NULL,
        layer TEXT NOT NULL, style TEXT NOT NULL, text TEXT NOT NULL, origin TEXT NOT NULL, {_CLOCK})""",
    f"""CREATE TABLE events (
        position INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT, {_CLOCK}, record TEXT NOT NULL,
        UNIQUE (kind, key))""",
    f"""CREATE TABLE spend (
        position INTEGER PRIMARY KEY, key TEXT NOT NULL, kind TEXT NOT NULL, amount REAL NOT NULL, {_CLOCK},
        UNIQUE (key, kind))""",
    *(
        f"CREATE TRIGGER {table}_keep_{act} BEFORE {act} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END"
        for table in ("candidates", "evaluations", "prompts", "replies", "questions", "events", "spend")
        for act in ("UPDATE", "DELETE")
    ),
)

_VERSION_2 = ("ALTER TABLE replies ADD COLUMN used_tools INTEGER NOT NULL DEFAULT 0",)

INDEXED_PATHS = ("number", "generation", "child_id", "parent_ids[0]", "parent_ids[1]")
"""Where in an event's JSON record a value can be looked for without reading all events."""

# With a hundred thousand rows whose texts fill gigabytes, a search may only touch what it asks for.
_VERSION_3 = (
    "CREATE INDEX evaluations_by_geomean ON evaluations (geomean, individual_id)",
    *(
        f"CREATE INDEX events_by_path_{number} ON events (kind, json_extract(record, '$.{path}')) "
        f"WHERE json_extract(record, '$.{path}') IS NOT NULL"
        for number, path in enumerate(INDEXED_PATHS)
    ),
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3)
"""Entry n leads from version n to n + 1; version 0 is an empty file. Published entries are never edited."""


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Brings the archive to the version that `migrations` lead to, all of it in one transaction, or not at all.

    Raises ArchiveError for a newer version and for a file of someone else's, sqlite3.Error where writing fails.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in migrations[version_of(connection, path, len(migrations)) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def version_of(connection: sqlite3.Connection, path: Path, known: int = len(MIGRATIONS)) -> int:
    """The archive's schema version. Raises ArchiveError for one above `known`, and for a file that is no archive."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > known:
        expected = f"this one knows versions up to {known}: upgrade evo"
        raise ArchiveError(f"{path}: schema version {version}, written by a newer evo; {expected}")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == 0 and tables:
        raise ArchiveError(f"{path}: an SQLite file, but no archive of evo; move it away")
    return version
