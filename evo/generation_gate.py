"""Generations that begin when somebody asks for one, with as many questions as were asked for."""

from collections.abc import Callable
from dataclasses import dataclass

from evo.loop import State
from evo.stop import StopSearch
from population.archive import Archive
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord

EVENT = "generation"


class GenerationComplete(StopSearch):
    """Everything that was asked for is done; the next generation begins when it is asked for."""


@dataclass(kw_only=True)
class GenerationGate:
    """The loop's step `stop`: lets one generation begin where it is wanted, and every one go on that has begun.

    `check` are the stop conditions; they hold back what has not begun. How many questions a generation began with is
    recorded, so that it is made again with as many.
    """

    archive: Archive
    check: Callable[[State], None]
    usual: int  # questions of a generation that nobody counted: `evo evolve` began it
    wanted: int | None  # questions for a generation that has not begun; None: none may begin
    count: int = 0  # questions of the generation under way

    def stop(self, state: State) -> None:
        """Raise StopSearch where a condition holds, GenerationComplete where no generation may begin."""
        generation = state.generation + 1
        begun = questions_begun_with(self.archive, generation)
        if begun is None and self.archive.question(state.next_birth) is not None:
            begun = self.usual
        if begun is None:
            self.check(state)
            if self.wanted is None:
                raise GenerationComplete(f"generation {state.generation} is complete")
            record = strict_json({"questions": self.wanted})
            self.archive.record_event(EventRecord(kind=EVENT, key=str(generation), record=record))
            begun, self.wanted = self.wanted, None
        self.count = begun


def questions_begun_with(archive: ArchiveReader, generation: int) -> int | None:
    """How many questions a generation began with; None where it has not begun."""
    event = archive.event(EVENT, str(generation))
    return None if event is None else int(parse_json(event.record)["questions"])
