"""What people drop into a run's folder while it searches, a JSON file each: putting one there needs no lock."""

import time
from pathlib import Path

from population.atomic_file import strict_json, write_atomically
from population.run_folder import writing


def drop_file(folder: Path, name: str, record: object) -> Path:
    """The file that now holds the record, whole or not at all; by names files are in the order of their coming.

    Raises RunFolderError where it cannot be written.
    """
    path = folder / f"{time.time_ns():020d}-{name}.json"
    with writing(path):
        folder.mkdir(exist_ok=True)
        write_atomically(path, strict_json(record) + "\n")
    return path


def dropped_files(folder: Path) -> list[Path]:
    """The files that were dropped there, the oldest first."""
    return sorted(folder.glob("*.json"))
