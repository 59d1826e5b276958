"""The folder of a run: where each of its files lies, how a new one is made, how an old one is recognised."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from population.faults import RunFolderError


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run. Nothing is looked up: a folder that was carried by hand may hold only some of them."""

    path: Path

    @property
    def name(self) -> str:
        """What messages call the run."""
        return self.path.name or str(self.path)

    @property
    def archive(self) -> Path:
        """The SQLite file; a folder is a run because it holds this."""
        return self.path / "archive.sqlite"

    @property
    def lock(self) -> Path:
        """Held by the one process that writes the archive."""
        return self.path / "archive.lock"

    @property
    def checkpoints(self) -> Path:
        """gen-0007.json and its like."""
        return self.path / "checkpoints"

    @property
    def kernels(self) -> Path:
        """<id>.cu for every individual."""
        return self.path / "kernels"

    @property
    def outbox(self) -> Path:
        """Prompts that wait for an answer."""
        return self.path / "outbox"

    @property
    def inbox(self) -> Path:
        """Replies that wait to be read."""
        return self.path / "inbox"

    @property
    def pending(self) -> Path:
        """Candidates that wait to be measured."""
        return self.path / "pending"

    @property
    def measured(self) -> Path:
        """Evaluations that wait to be taken in."""
        return self.path / "measured"

    @property
    def questions(self) -> Path:
        """Questions that people put to the run, one a file."""
        return self.path / "questions"

    @property
    def added(self) -> Path:
        """Kernels that people put to the run, one a file."""
        return self.path / "added"

    @property
    def result(self) -> Path:
        """The outcome in one JSON object."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """The outcome as a page."""
        return self.path / "report.html"

    @property
    def subfolders(self) -> tuple[Path, ...]:
        """Those that a new run starts with."""
        return (self.checkpoints, self.kernels, self.outbox, self.inbox, self.pending, self.measured)


def create_run_folder(root: Path, name: str) -> RunFolder:
    """A new folder under `root` that no other process has: `name`, or `name-2`, `name-3` … where that is taken.

    Raises RunFolderError for a name that is no plain folder name, and where `root` cannot be written.
    """
    run = RunFolder(claim_folder(root, name))
    try:
        for folder in run.subfolders:
            folder.mkdir()
    except OSError as error:
        raise RunFolderError(f"no run can be made in {root}: {error}; name another folder for runs") from error
    return run


def claim_folder(root: Path, name: str) -> Path:
    """A new empty folder under `root`, named and refused as `create_run_folder` has it."""
    if not name.strip() or name.startswith(".") or "/" in name or "\0" in name:
        raise RunFolderError(f"run name {name!r}: expected a folder's name without '/' or a dot in front: 'first-try'")
    try:
        root.mkdir(parents=True, exist_ok=True)
        return _claim(root, name)
    except OSError as error:
        raise RunFolderError(f"no run can be made in {root}: {error}; name another folder for runs") from error


def open_run_folder(path: Path) -> RunFolder:
    """The run at `path`. Raises RunFolderError for a missing folder, a file, and a folder that is no run."""
    run = RunFolder(path)
    if not path.exists():
        raise RunFolderError(f"{path}: no such run; expected the folder of a run, such as runs/first-try")
    if not path.is_dir():
        raise RunFolderError(f"{path}: this is a file; expected the folder of a run, perhaps {path.parent}")
    if not run.archive.is_file():
        raise RunFolderError(f"{path}: this folder is no run: it holds no {run.archive.name}")
    return run


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it `path` is written. Raises RunFolderError where the system refuses that."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{path}: {error}; make room or rights there") from error


def _claim(root: Path, name: str) -> Path:
    """mkdir decides between processes that ask for the same name at the same time."""
    path, number = root / name, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            path = root / f"{name}-{number}"
        else:
            return path
