"""The archive's file: lock, journal, versions, damage, a full disk, and a writer that is killed."""

import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from population.archive import create_archive, open_archive
from population.archive_lock import ArchiveLock, journal_mode, living_writer
from population.archive_reader import read_archive
from population.archive_schema import MIGRATIONS, migrate, version_of
from population.faults import ArchiveError
from population.individual import Individual
from population.records import PromptRecord
from population.run_folder import RunFolder, create_run_folder

SEED = Individual.from_source("int seed;", birth=-1, generation=0, operator="seed")
PROMPT = PromptRecord(number=0, attempt=0, text="What bounds it?")


@pytest.fixture
def run(tmp_path):
    return create_run_folder(tmp_path, "first")


@pytest.fixture
def closed(run):
    """The run of a closed archive that holds the seed."""
    with create_archive(run) as archive:
        archive.record_individual(SEED)
    return run


def python(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_run_is_not_begun_twice(closed):
    with pytest.raises(ArchiveError, match="is there already; resume the run"):
        create_archive(closed)


def test_a_second_writer_is_refused_by_name_and_a_reader_is_not(run):
    with create_archive(run) as archive:
        archive.record_individual(SEED)
        script = "import sys; from pathlib import Path\n"
        script += "from population.archive import open_archive; from population.run_folder import RunFolder\n"
        script += "open_archive(RunFolder(Path(sys.argv[1])))"
        refused = python(script, run.path)
        assert "run first is being written by pid" in refused.stderr
        assert f"{run.lock.read_text().strip()}; wait for it or end it" in refused.stderr
        with pytest.raises(ArchiveError, match=r"run first is being written by pid \d+ on host "):
            open_archive(run)
        with read_archive(run) as reader:
            assert reader.individual(SEED.id) == SEED
    with open_archive(run) as archive:
        assert archive.holds(SEED.id)


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from population.archive import open_archive
from population.records import PromptRecord
from population.run_folder import RunFolder

archive = open_archive(RunFolder(Path(sys.argv[1])), mounts=Path(sys.argv[2]))
archive.record_prompt(PromptRecord(number=0, attempt=0, text="kept"))
with archive.transaction():
    archive.record_prompt(PromptRecord(number=1, attempt=0, text="kept too"))
with archive.transaction():
    for number in range(2, 2000):
        archive.record_prompt(PromptRecord(number=number, attempt=0, text="lost" * 1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("file_system", ["ext4", "nfs4"])
def test_a_writer_killed_in_a_transaction_loses_that_one_only(closed, tmp_path, caplog, file_system):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / {file_system} rw 0 0\n")
    assert python(KILLED_WRITER, closed.path, mounts).returncode == -signal.SIGKILL
    with open_archive(closed, mounts=mounts) as archive:
        assert [prompt.text for prompt in archive.prompts()] == ["kept", "kept too"]
        archive.record_prompt(PromptRecord(number=2, attempt=0, text="new"))
        assert archive.individual(SEED.id) == SEED
    assert "its last writer, pid " in caplog.messages[0]
    assert "ended without closing the archive" in caplog.messages[0]


def test_a_reader_after_a_killed_writer_sees_what_was_kept_or_says_what_to_do(closed, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("disk / ext4 rw 0 0\n")
    python(KILLED_WRITER, closed.path, mounts)
    with read_archive(closed) as reader:
        assert [prompt.text for prompt in reader.prompts()] == ["kept", "kept too"]
    open_archive(closed).close()
    mounts.write_text("server:/x / nfs rw 0 0\n")
    python(KILLED_WRITER, closed.path, mounts)
    with pytest.raises(ArchiveError, match="the last writer was killed while it wrote; resume the run once"):
        read_archive(closed)
    open_archive(closed).close()
    with read_archive(closed) as reader:
        assert [prompt.text for prompt in reader.prompts()] == ["kept", "kept too"]


def test_a_failed_opening_leaves_no_lock(run):
    with pytest.raises(ArchiveError, match="unable to open database file"):
        open_archive(run)
    ArchiveLock(run).close()


def test_a_missing_run_is_one_clear_error(tmp_path):
    for opening in (create_archive, open_archive, read_archive):
        with pytest.raises(ArchiveError, match="absent"):
            opening(RunFolder(tmp_path / "absent"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mounts", "mode"),
    [
        ("disk / ext4 rw 0 0\n", "WAL"),
        ("disk / ext4 rw 0 0\nserver:/x /runs nfs4 rw 0 0\n", "DELETE"),
        ("server:/x / nfs rw 0 0\ndisk /runs xfs rw 0 0\n", "WAL"),
        ("disk / ext4 rw 0 0\nserver:/x /runs/a/b lustre rw 0 0\n", "WAL"),
        ("disk / ext4 rw 0 0\nserver:/x /run beegfs rw 0 0\n", "WAL"),
        ("disk /runs ext4 rw 0 0\nserver:/x /runs cifs rw 0 0\n", "DELETE"),
        ("sshfs / fuse.sshfs rw 0 0\n", "DELETE"),
        ("scratch / gpfs rw 0 0\n", "DELETE"),
        ("x / somethingnew rw 0 0\n", "DELETE"),
        ("", "DELETE"),
    ],
)
def test_the_journal_suits_the_file_system(tmp_path, mounts, mode):
    table = tmp_path / "mounts"
    table.write_text(mounts.replace("/run", f"{tmp_path}/run"))
    (tmp_path / "runs").mkdir()
    assert journal_mode(tmp_path / "runs", table) == mode


def test_mount_points_with_blanks_are_understood(tmp_path):
    table, folder = tmp_path / "mounts", tmp_path / "my runs"
    folder.mkdir()
    table.write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path}/my\\040runs nfs4 rw 0 0\n")
    assert journal_mode(folder, table) == "DELETE"
    assert journal_mode(tmp_path, table) == "WAL"


def test_without_a_mount_table_the_journal_is_the_safe_one(tmp_path):
    assert journal_mode(tmp_path, tmp_path / "absent") == "DELETE"


@pytest.mark.parametrize(("file_system", "journal"), [("xfs", "wal"), ("nfs", "delete")])
def test_the_archive_uses_that_journal_and_syncs_every_commit(run, tmp_path, file_system, journal):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / {file_system} rw 0 0\n")
    create_archive(run, mounts=mounts).close()
    with open_archive(run, mounts=mounts) as archive:
        asked = ("journal_mode", "synchronous")
        assert [archive._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked] == [journal, 3]


def test_an_older_archive_is_migrated_with_its_rows(closed):
    connection = sqlite3.connect(closed.archive, isolation_level=None)
    later = (*MIGRATIONS, ("ALTER TABLE candidates ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
    migrate(connection, closed.archive, later)
    assert version_of(connection, closed.archive, known=len(later)) == len(later)
    assert connection.execute("SELECT id, note FROM candidates").fetchall() == [(SEED.id, "none")]
    migrate(connection, closed.archive, later)
    connection.close()
    newer = rf"schema version {len(later)}, written by a newer evo; .* up to {len(MIGRATIONS)}: upgrade evo"
    for opening in (open_archive, read_archive):
        with pytest.raises(ArchiveError, match=newer):
            opening(closed)


def test_version_2_adds_to_a_reply_whether_tools_were_used(run):
    connection = sqlite3.connect(run.archive, isolation_level=None)
    migrate(connection, run.archive, MIGRATIONS[:1])
    connection.execute(
        "INSERT INTO replies (number, attempt, model, finish_reason, prompt_tokens, completion_tokens, cost_usd, "
        "estimated, text) VALUES (0, 0, 'm', 'stop', 1, 2, 0.5, 0, 'from before')"
    )
    connection.close()
    before = run.archive.read_bytes()
    with read_archive(run) as reader:  # as if it were migrated
        assert [(reply.text, reply.used_tools) for reply in reader.replies()] == [("from before", False)]
    assert run.archive.read_bytes() == before
    with open_archive(run) as archive:
        earlier = archive.reply(0, 0)
        archive.record_reply(replace(earlier, number=1, used_tools=True))
        assert [(reply.text, reply.used_tools) for reply in archive.replies()] == [
            ("from before", False), ("from before", True),
        ]  # fmt: skip


def test_version_3_finds_attempts_that_were_recorded_before_it(run):
    connection = sqlite3.connect(run.archive, isolation_level=None)
    migrate(connection, run.archive, MIGRATIONS[:2])
    attempt = {"number": 7, "generation": 2, "child_id": "kc", "parent_ids": ["ka", "kb"]}
    for record in (attempt, attempt | {"child_id": None, "parent_ids": ["kb"]}):
        connection.execute("INSERT INTO events (kind, key, record) VALUES ('attempt', NULL, ?)", [json.dumps(record)])
    connection.close()
    with open_archive(run) as archive:
        found = [archive.records_where("attempt", path, value) for path, value in (
            ("number", 7), ("generation", 2), ("child_id", "kc"), ("parent_ids[0]", "kb"), ("parent_ids[1]", "kb"),
        )]  # fmt: skip
        assert [len(events) for events in found] == [2, 2, 1, 1, 1]
        assert json.loads(found[2][0]) == attempt
        assert archive.records_where("other", "number", 7) == []
        assert archive.repeated("attempt", "number") == {7}
        assert archive.repeated("attempt", "child_id") == frozenset()
        with pytest.raises(ValueError, match="no index; expected one of number, generation"):
            archive.records_where("attempt", "layer", "memory")


def test_what_a_search_asks_of_a_large_archive_is_answered_from_indices(run):
    plans = []
    with create_archive(run) as archive:
        archive._connection.set_trace_callback(plans.append)
        archive.records_where("attempt", "parent_ids[0]", "ka")
        archive.geomeans(before_birth=3)
        archive.best_geomeans()
        archive._connection.set_trace_callback(None)
        details = [
            [row["detail"] for row in archive._connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
            for sql in plans
        ]
    by_parent, geomeans, best = details
    assert any("USING INDEX events_by_path_3" in line for line in by_parent)
    assert any("USING COVERING INDEX evaluations_by_geomean" in line for line in geomeans)
    assert any("USING COVERING INDEX evaluations_by_geomean" in line for line in best)


def test_an_older_archive_too_large_for_a_copy_says_what_to_do(run):
    connection = sqlite3.connect(run.archive, isolation_level=None)
    migrate(connection, run.archive, MIGRATIONS[:1])
    connection.close()
    with pytest.raises(ArchiveError, match=r"schema version 1, this evo reads 3; resume the run once"):
        read_archive(run, copy_bytes=4096)


def test_version_0_is_an_empty_file_and_migrates_to_the_present_one(tmp_path):
    connection = sqlite3.connect(tmp_path / "archive.sqlite", isolation_level=None)
    assert version_of(connection, tmp_path) == 0
    migrate(connection, tmp_path)
    assert version_of(connection, tmp_path) == len(MIGRATIONS)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    connection.close()
    assert [name for (name,) in tables] == [
        "candidates", "evaluations", "events", "prompts", "questions", "replies", "spend",
    ]  # fmt: skip


def test_a_migration_that_fails_changes_nothing(closed):
    connection = sqlite3.connect(closed.archive, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, closed.archive, (*MIGRATIONS, ("CREATE TABLE notes (text)", "no SQL")))
    assert version_of(connection, closed.archive) == len(MIGRATIONS)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'notes'").fetchone() == (0,)
    connection.close()


def test_an_archive_whose_making_was_cut_off_is_made(run):
    run.archive.write_bytes(b"")
    with open_archive(run) as archive:
        archive.record_individual(SEED)
    with read_archive(run) as reader:
        assert reader.individual(SEED.id) == SEED


@pytest.mark.parametrize("opening", [open_archive, read_archive])
def test_an_empty_file_is_not_taken_for_a_new_archive(closed, opening):
    closed.archive.write_bytes(b"")
    with pytest.raises(ArchiveError, match="empty, but the run has kernels: the file is damaged; restore a copy"):
        opening(closed)


@pytest.mark.parametrize("opening", [open_archive, read_archive])
def test_a_file_that_is_no_database_is_named(closed, opening):
    closed.archive.write_bytes(b"no database" * 1000)
    with pytest.raises(ArchiveError, match=r"file is not a database; the file is damaged or no archive"):
        opening(closed)


@pytest.mark.parametrize("opening", [open_archive, read_archive])
def test_someone_elses_database_is_left_alone(run, opening):
    connection = sqlite3.connect(run.archive)
    connection.execute("CREATE TABLE recipes (text)")
    connection.close()
    with pytest.raises(ArchiveError, match="no archive of evo"):
        opening(run)


def test_a_file_cut_in_half_is_one_clear_error(closed):
    with open_archive(closed) as archive:
        for number in range(50):
            archive.record_prompt(PromptRecord(number=number, attempt=0, text="?" * 5000))
    content = closed.archive.read_bytes()
    closed.archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(ArchiveError, match="the file is damaged; restore a copy"), open_archive(closed) as archive:
        list(archive.prompts())


def test_a_source_altered_in_the_archive_is_noticed(closed):
    content = closed.archive.read_bytes()
    closed.archive.write_bytes(content.replace(b"int seed;", b"int sEed;"))
    with open_archive(closed) as archive, pytest.raises(ArchiveError, match=f"the source of {SEED.id} has another id"):
        archive.individual(SEED.id)


FULL_DISK = """
import resource, sys
from pathlib import Path
from population.archive import open_archive
from population.faults import ArchiveError
from population.records import PromptRecord
from population.run_folder import RunFolder

with open_archive(RunFolder(Path(sys.argv[1]))) as archive:
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
    number = 0
    try:
        while True:
            archive.record_prompt(PromptRecord(number=number, attempt=0, text="?" * 50_000))
            number += 1
    except ArchiveError as error:
        print(number, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    archive.record_prompt(PromptRecord(number=number, attempt=0, text="room again"))
"""


def test_a_full_disk_is_one_clear_error_and_loses_nothing_that_was_kept(closed):
    ended = python(FULL_DISK, closed.path)
    assert ended.returncode == 0, ended.stderr
    number, _, message = ended.stdout.partition(" ")
    assert "resume the run" in message
    with read_archive(closed) as reader:
        assert [prompt.number for prompt in reader.prompts()] == list(range(int(number) + 1))


def test_a_closed_archive_is_one_file_that_can_be_copied_and_read(closed, tmp_path):
    copy = RunFolder(tmp_path / "copy ?#%")
    copy.path.mkdir()
    shutil.copy(closed.archive, copy.archive)
    with read_archive(copy) as reader:
        assert list(reader.individuals()) == [SEED]
    assert list(copy.path.iterdir()) == [copy.archive]


def test_closing_waits_for_no_reader_and_happens_once(run):
    archive = create_archive(run)
    archive.record_prompt(PROMPT)
    with read_archive(run) as reader:
        assert list(reader.prompts()) == [PROMPT]
        archive.close()
        archive.close()
        assert list(reader.prompts()) == [PROMPT]
    with open_archive(run) as archive:
        assert list(archive.prompts()) == [PROMPT]


def test_a_living_writer_is_named_and_not_disturbed(run):
    assert living_writer(run) is None
    with create_archive(run):
        assert living_writer(run) == run.lock.read_text().strip()
        with pytest.raises(ArchiveError, match="is being written by pid"):
            ArchiveLock(run)
    assert living_writer(run) is None


def test_a_writer_lives_as_far_as_it_can_be_looked_for(run, tmp_path):
    processes = tmp_path / "proc"
    for pid, opened in (("11", run.lock), ("12", tmp_path)):
        (processes / pid / "fd").mkdir(parents=True)
        (processes / pid / "fd" / "0").symlink_to(tmp_path / "closed meanwhile")
        (processes / pid / "fd" / "3").symlink_to(opened)
    (processes / "13").mkdir()  # one whose files cannot be seen
    here, elsewhere = socket.gethostname(), "another.host"
    for pid, host, lives in (
        ("11", here, True), ("12", here, False), ("13", here, True), ("14", here, False), ("14", elsewhere, True),
    ):  # fmt: skip
        run.lock.write_text(f"pid {pid} on host {host}\n", encoding="utf-8")
        assert living_writer(run, processes=processes) == (f"pid {pid} on host {host}" if lives else None)
    run.lock.write_bytes(b"\xff pid 11")
    assert living_writer(run, processes=processes) is None
