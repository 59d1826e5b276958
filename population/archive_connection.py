"""The connection to an archive's file, and what is found there before anything is asked of it."""

import sqlite3

from population.archive_schema import version_of
from population.faults import ArchiveError
from population.run_folder import RunFolder
from population.sqlite_faults import explained

BUSY_TIMEOUT_S = 60.0


def connect(run: RunFolder, access: str) -> sqlite3.Connection:
    """A connection in autocommit mode; `access` is SQLite's: "ro", "rw", or "rwc", which creates the file."""
    with explained(run.archive):
        address = f"{run.archive.absolute().as_uri()}?mode={access}"
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def found_version(connection: sqlite3.Connection, run: RunFolder) -> int:
    """The archive's schema version; 0 for one whose making was cut off, or has only begun.

    Raises ArchiveError for one that is newer, is no archive, or was emptied.
    """
    with explained(run.archive):
        version = version_of(connection, run.archive)
    if version == 0 and any(run.kernels.glob("*.cu")):
        raise ArchiveError(f"{run.archive}: empty, but the run has kernels: the file is damaged; restore a copy")
    return version
