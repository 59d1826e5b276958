"""An archive of an older version, read as if it had been migrated: a copy in memory is."""

import sqlite3
from pathlib import Path

from population.archive_schema import MIGRATIONS, migrate, version_of
from population.faults import ArchiveError
from population.sqlite_faults import explained

COPY_BYTES = 1 << 30  # the largest archive that is copied so


def migrated_copy(connection: sqlite3.Connection, path: Path, *, at_most: int) -> sqlite3.Connection:
    """The content of the archive at `path`, with the present schema. Raises ArchiveError for one of more bytes."""
    with explained(path):
        pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if pages * page_bytes > at_most:
            version = version_of(connection, path)
            expected = f"this evo reads {len(MIGRATIONS)}; resume the run once to bring it there"
            raise ArchiveError(f"{path}: schema version {version}, {expected}")
        copy = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.backup(copy)
            migrate(copy, path)
        except BaseException:
            copy.close()
            raise
    return copy
