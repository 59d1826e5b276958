"""Builds kept on disk under the hash of all that went into them, so that nothing is compiled twice."""

import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fitness.evaluation import BuildReport, KernelResources, Status
from fitness.faults import CandidateFault, EnvironmentFault

logger = logging.getLogger(__name__)

_ENTRY = re.compile(r"[0-9a-f]{64}")  # a key, as the names of entries begin


class BuildCache:
    """A folder of binaries, each with a record of what the compiler said; faults are records without a binary.

    Several processes may write at once: files appear whole, by renaming, and a record holds the hash of its binary. An
    entry that does not fit together counts as absent.
    """

    def __init__(self, folder: Path, *, suffix: str = ".cubin") -> None:
        self._folder = folder
        self._suffix = suffix

    def get(self, key: str) -> tuple[Path, BuildReport] | None:
        """The binary and the report kept under a key; None where there is none.

        Raises the CandidateFault that was kept instead, or EnvironmentFault where the folder cannot be read.
        """
        binary = self._path(key, self._suffix)
        with self._blaming_the_folder():
            try:
                record = json.loads(self._path(key, ".json").read_bytes())
                kept = _fault(record) if "fault" in record else _report(record, _sha256(binary.read_bytes()))
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("compile cache: %s is damaged (%s); compiling again", binary, error)
                return None
        if isinstance(kept, CandidateFault):
            raise kept
        return binary, kept

    def keep(self, key: str, binary: bytes, report: BuildReport) -> Path:
        """The file that now holds the binary. Raises EnvironmentFault where it cannot be written."""
        with self._blaming_the_folder():
            path = self._publish(self._path(key, self._suffix), binary)
            self._publish_record(key, {"binary_sha256": _sha256(binary), "report": asdict(report)})
        return path

    def keep_fault(self, key: str, fault: CandidateFault) -> None:
        """Have `get` raise this fault from now on. Raises EnvironmentFault where it cannot be written."""
        with self._blaming_the_folder():
            self._publish_record(key, {"fault": {"status": str(fault.status), "reason": fault.reason}})

    def prune(self, max_bytes: int) -> int:
        """Remove the oldest entries until the rest is within `max_bytes`; the bytes removed.

        Files that are no entries stay: the folder may be somebody's home.
        Not while a run uses the folder: it may be about to load a binary. Raises EnvironmentFault.
        """
        with self._blaming_the_folder():
            files = [path for path in self._folder.glob("*") if _ENTRY.fullmatch(path.stem) and path.is_file()]
            oldest = sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in files)
            excess = sum(size for _, size, _ in oldest) - max_bytes
            removed = 0
            for _, size, path in oldest:
                if removed >= excess:
                    break
                path.unlink(missing_ok=True)
                removed += size
        return removed

    def _path(self, key: str, suffix: str) -> Path:
        return self._folder / f"{key}{suffix}"

    def _publish_record(self, key: str, record: Mapping[str, object]) -> None:
        text = json.dumps(record, allow_nan=False, indent=1)
        self._publish(self._path(key, ".json"), text.encode())

    def _publish(self, path: Path, content: bytes) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".unfinished-", delete=False) as file:
            unfinished = Path(file.name)
            try:
                file.write(content)
                file.flush()
                unfinished.replace(path)
            except OSError:
                unfinished.unlink()
                raise
        return path

    @contextmanager
    def _blaming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentFault(
                f"the compile cache {self._folder} cannot be used: {error}; "
                "free some space there, make it writable, or name another folder"
            ) from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fault(record: Mapping[str, Any]) -> CandidateFault:
    return CandidateFault(Status(record["fault"]["status"]), record["fault"]["reason"])


def _report(record: Mapping[str, Any], binary_sha256: str) -> BuildReport:
    if record["binary_sha256"] != binary_sha256:
        raise ValueError("the binary is not the one that was recorded")
    report = record["report"]
    kernels = tuple(KernelResources(**kernel) for kernel in report["kernels"])
    return BuildReport(name=report["name"], kernels=kernels, advisories=tuple(report["advisories"]))
