"""SQLite's errors in a user's words."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from population.faults import ArchiveError

_HINTS = {
    "SQLITE_FULL": "make room on the disk, then resume the run",
    "SQLITE_IOERR": "the disk is full, over quota or failing; see to it, then resume the run",
    "SQLITE_CORRUPT": "the file is damaged; restore a copy of it, or start a new run from its kernels",
    "SQLITE_NOTADB": "the file is damaged or no archive; restore a copy of it, or start a new run from its kernels",
    "SQLITE_BUSY": "another process kept it locked; end that one and resume the run",
    "SQLITE_READONLY_ROLLBACK": "the last writer was killed while it wrote; resume the run once, which mends the file",
    "SQLITE_READONLY": "the file and its folder must be writable",
    "SQLITE_CANTOPEN": "expected the archive of a run there, readable by this user",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what SQLite raises about the archive at `path` into one ArchiveError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")  # the module's own complaints have none
        hint = next((f"; {hint}" for code, hint in _HINTS.items() if name.startswith(code)), "")
        raise ArchiveError(f"{path}: {error}{hint}") from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise ArchiveError(f"{path}: a value that SQLite cannot hold: {error}") from error
