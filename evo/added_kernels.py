"""Kernels that people put to a run while it searches: a file each, judged beside the children of its next generation.

Adding one needs no lock. The search takes it in as a generation begins, and records that: a generation that is made
again has it too. No question made it, so none gets credit, and it has no question's number: it counts on downwards from
the seeds.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evo.dropped_files import drop_file, dropped_files
from evo.history import History
from evo.mutation import RepliesAwaited
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.individual import BY_HAND, Individual, individual_id
from population.records import EventRecord
from population.run_folder import RunFolder

KERNEL_ADDED = "kernel_added"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AddedKernel:
    """A person's kernel, and the kernels that it came of: none, or the ids of some of the run."""

    source: str
    parent_ids: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id that it has in a run."""
        return individual_id(self.source)


@dataclass(frozen=True, kw_only=True)
class TakenIn:
    """A person's kernel that a search knows of: in which generation, before which question, and by which file."""

    name: str
    number: int
    generation: int
    birth: int | None  # None: the run had its text before, so it is nothing new
    kernel: AddedKernel


class Varies(Protocol):
    """The step of the loop that makes a generation's children."""

    def __call__(
        self, parents: Sequence[tuple[Individual, ...]], *, first_birth: int, generation: int
    ) -> list[Individual]:
        """The new candidates."""


class AddedKernels:
    """Hands people's kernels to the generations. Used by the thread that writes the archive."""

    def __init__(self, *, folder: Path, archive: Archive, history: History, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._archive = archive
        self._history = history
        self._note = note
        self._known = {taken.name: taken for taken in kernels_taken_in(archive)}
        self._refused: set[str] = set()

    def beside(self, vary: Varies) -> Varies:
        """The step `vary`, with people's kernels before its children; while replies are out, they can be measured."""

        def vary_beside(
            parents: Sequence[tuple[Individual, ...]], *, first_birth: int, generation: int
        ) -> list[Individual]:
            added = self.take_in(generation, number=first_birth)
            try:
                return [*added, *vary(parents, first_birth=first_birth, generation=generation)]
            except RepliesAwaited as awaited:
                raise awaited.beside([each.source for each in added]) from None

        return vary_beside

    def take_in(self, generation: int, *, number: int) -> list[Individual]:
        """The kernels of a generation: those taken in before an interruption, and else what has come since.

        `number` is that of its first question; once that is asked, what comes is the next generation's.
        """
        if self._archive.question(number) is None:
            for path in dropped_files(self._folder):
                if path.stem not in self._known and path.stem not in self._refused:
                    self._take(path, generation, number)
        return [
            self._individual(taken.kernel, generation, taken.birth)
            for taken in self._known.values()
            if taken.generation == generation and taken.birth is not None
        ]

    def _take(self, path: Path, generation: int, number: int) -> None:
        try:
            kernel = read_kernel(path)
            if strangers := [each for each in kernel.parent_ids if not (self._has(each) or self._archive.holds(each))]:
                raise ValueError(f"its parent {strangers[0]} is no kernel of this run")
        except ValueError as fault:
            self._refused.add(path.stem)
            self._say(f"{path} is not taken in: {fault}")
            return
        birth = None if self._is_known(kernel.id) else self._next_birth()
        self._say(
            f"{kernel.id}, put in by hand, is the text of one that was judged before: nothing new"
            if birth is None
            else f"{kernel.id}, put in by hand, is judged beside the children of generation {generation}"
        )
        record = {"number": number, "generation": generation, "birth": birth, "parents": kernel.parent_ids}
        self._archive.record_event(
            EventRecord(kind=KERNEL_ADDED, key=path.stem, record=strict_json({**record, "source": kernel.source}))
        )
        self._known[path.stem] = TakenIn(
            name=path.stem, number=number, generation=generation, birth=birth, kernel=kernel
        )

    def _is_known(self, name: str) -> bool:
        """Whether the text competes, or will; one of a question that was given up does not, measured or not."""
        led_to = self._history.attempt_of(name) is not None
        return led_to or self._has(name) or name in self._archive.seed_ids()

    def _has(self, name: str) -> bool:
        return any(taken.kernel.id == name for taken in self._known.values())

    def _next_birth(self) -> int:
        taken = sum(1 for each in self._known.values() if each.birth is not None)
        return -1 - len(self._archive.seed_ids()) - taken

    def _individual(self, kernel: AddedKernel, generation: int, birth: int) -> Individual:
        """The kernel as an individual, recorded and remembered, and its parents with it."""
        parents = tuple(each for each in kernel.parent_ids if self._archive.holds(each))
        individual = self._archive.find_individual(kernel.id) or Individual.from_source(
            kernel.source, birth=birth, generation=generation, operator=BY_HAND, parent_ids=parents
        )
        self._archive.record_individual(individual)
        for parent in parents:
            if not self._history.knows(parent):  # of a question that was given up
                self._history.add_individual(self._archive.individual(parent))
        self._history.add_individual(individual)
        return individual

    def _say(self, line: str) -> None:
        logger.info("%s", line)
        self._note(line)


def add_kernel(run: RunFolder, kernel: AddedKernel) -> Path:
    """The file that now holds the kernel, for the run to take in.

    Raises RunFolderError where it cannot be written.
    """
    return drop_file(run.added, kernel.id, {"parents": kernel.parent_ids, "source": kernel.source})


def read_kernel(path: Path) -> AddedKernel:
    """The kernel in a file. Raises ValueError for anything else."""
    try:
        return _kernel_of(parse_json(path.read_bytes().decode("utf-8")))
    except (OSError, ValueError) as error:
        raise ValueError(f"it cannot be read ({error}); put the kernel in again") from error


def kernels_taken_in(archive: ArchiveReader) -> Iterator[TakenIn]:
    """The people's kernels that a run has taken in, in that order."""
    for event in archive.events_of(KERNEL_ADDED):
        record = parse_json(event.record)
        yield TakenIn(
            name=str(event.key), number=record["number"], generation=record["generation"], birth=record["birth"],
            kernel=_kernel_of(record),
        )  # fmt: skip


def births_after(archive: ArchiveReader, generation: int) -> frozenset[int]:
    """The births of the kernels that were taken in after a generation.

    They are those of the archive's rows: where a question that was given up had led to the text, its number.
    """
    later = (taken for taken in kernels_taken_in(archive) if taken.generation > generation)
    found = (archive.find_individual(taken.kernel.id) for taken in later if taken.birth is not None)
    return frozenset(individual.birth for individual in found if individual is not None)


def _kernel_of(record: object) -> AddedKernel:
    match record:
        case {"source": str(source), "parents": [*parents]} if all(isinstance(each, str) for each in parents):
            source.encode("utf-8")  # a lone surrogate is a ValueError
            return AddedKernel(source=source, parent_ids=tuple(parents))
    raise ValueError("expected a source and a list of parents")
