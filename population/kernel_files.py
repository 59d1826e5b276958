"""kernels/<id>.cu: the sources of a run as files that people and tools can open. The archive is the truth."""

import logging
import os
from pathlib import Path

from population.atomic_file import write_atomically
from population.faults import ArchiveError

logger = logging.getLogger(__name__)


class KernelFiles:
    """One file an individual, holding its source byte for byte."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, individual_id: str, source: str) -> None:
        """Makes the file hold `source`; one that does already is left alone. Raises ArchiveError where it cannot."""
        path = self._path(individual_id)
        content = _content(path)
        if content == source.encode("utf-8"):
            return
        if content is not None:
            logger.warning("%s had been altered; it is written again from the archive", path)
        try:
            self._folder.mkdir(exist_ok=True)
            write_atomically(path, source, sync=False)  # what a power loss takes, the archive gives back
        except OSError as error:
            raise ArchiveError(f"{path}: {error}; make room or rights there, then resume the run") from error

    def times(self) -> dict[str, float]:
        """When each file was last written, in seconds since 1970, by the individual's id."""
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name[:-3]: entry.stat().st_mtime for entry in entries if entry.name.endswith(".cu")}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ArchiveError(f"{self._folder}: {error}; expected the run's kernels, readable") from error

    def fault(self, individual_id: str, source: str) -> str | None:
        """What is wrong with the file of an individual whose source is `source`; None where it holds just that."""
        path = self._path(individual_id)
        content = _content(path)
        if content is None:
            return f"{path} is missing; the archive still holds the source"
        if content != source.encode("utf-8"):
            return f"{path} was altered since it was recorded; the archive's source counts"
        return None

    def _path(self, individual_id: str) -> Path:
        return self._folder / f"{individual_id}.cu"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArchiveError(f"{path}: {error}; expected a kernel's source") from error
