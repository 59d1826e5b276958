"""A run's story as the lines of a trace: its beginning, then mutation by mutation, then how it stands."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evo.added_kernels import KERNEL_ADDED
from evo.added_questions import QUESTION_ADDED
from evo.attempt_events import ATTEMPT_EVENT
from evo.mailbox_search import GIVEN_UP_EVENT
from evo.mutation import ATTEMPTS
from evo.reply_records import TOOL_CALL_EVENT, spent_on_request
from evo.result import is_current, read_result
from evo.run_settings import recorded_settings
from evo.toolbox import read_template
from evo.trace.trace_file import FIRST, SCHEMA, Line
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json
from population.checkpoint import Checkpoint, load_newest
from population.individual import BY_HAND, individual_id
from population.records import EventRecord
from population.run_folder import RunFolder
from questions.bank import load_bank, shipped_bank_path
from questions.entry import write_entry


def story(run: RunFolder, archive: ArchiveReader) -> Iterator[Line]:
    """The lines of a run's trace. Its end is read first: what is written meanwhile comes after that, and may be there.

    Raises ConfigError, BankError or PromptError where a bank or a template that the run named is gone, and RunFault.
    """
    loaded = load_newest(run.checkpoints)
    checkpoint = loaded.checkpoint if loaded else None
    result = read_result(run)
    settings = recorded_settings(archive)
    template = settings.get("style.template")
    yield {
        "kind": FIRST,
        "schema": SCHEMA,
        "run": run.name,
        "template": read_template(template).frame if template else None,
    }
    yield from _bank(settings.get("questions.files", []))
    yield from _Chapters(archive).lines()
    generations = checkpoint.generation if checkpoint else 0
    current = result and is_current(result, generations=generations, evaluations=archive.evaluation_count())
    yield from _end(checkpoint, result if current else None)


@dataclass
class _Placed:
    """What belongs to one mutation, or to none, and is not looked up by its number."""

    before: list[Line] = field(default_factory=list)  # the question
    beside: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list))  # a request, by its attempt
    after: list[Line] = field(default_factory=list)  # the replies
    by_hand: list[str] = field(default_factory=list)  # the ids of kernels that were put in before the question


class _Chapters:
    """The archive's content in the order of the mutations' numbers; long texts are read as they are told."""

    def __init__(self, archive: ArchiveReader) -> None:
        self._archive = archive
        self._placed: dict[int | None, _Placed] = defaultdict(_Placed)
        self._orders: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for order, score in enumerate(archive.scores()):
            self._orders[score.individual_id].append((order, score.key))
        births = list(archive.births())
        self._births = sorted((birth.birth, birth.id) for birth in births if birth.operator != BY_HAND)
        self._last = max([archive.next_question_number() - 1, *(birth for birth, _ in self._births)], default=-1)
        for event in archive.events():
            self._place(event)
        for order, spend in enumerate(archive.spend()):
            amount = {"what": spend.kind, "amount": spend.amount}
            self._file({"kind": "spend", "order": order, "spent_on": spend.key, **amount}, spent_on_request(spend.key))

    def lines(self) -> Iterator[Line]:
        """Seeds and what belongs to no mutation, then each mutation."""
        nowhere = self._placed.pop(None, _Placed())
        yield from nowhere.before
        children = {birth: name for birth, name in self._births if birth >= 0}
        for birth, name in reversed(self._births):
            if birth < 0:  # the first seed is born at -1
                yield from self._candidate(name)
        for number in range(self._last + 1):
            yield from self._mutation(number)
            if number in children:
                yield from self._candidate(children[number])
        for number in sorted(number for number in self._placed if number is not None and number > self._last):
            yield from self._before(self._placed[number])
            yield from _all_after(self._placed[number])

    def _mutation(self, number: int) -> Iterator[Line]:
        placed = self._placed.get(number, _Placed())
        yield from self._before(placed)
        if question := self._archive.question(number):
            yield {"kind": "question", **asdict(question)}
        for attempt in range(ATTEMPTS):
            if prompt := self._archive.prompt(number, attempt):
                yield {"kind": "prompt", **asdict(prompt)}
            yield from placed.beside.get(attempt, ())
            if reply := self._archive.reply(number, attempt):
                yield {"kind": "reply", **asdict(reply)}
        yield from placed.after

    def _before(self, placed: _Placed) -> Iterator[Line]:
        """People's questions and kernels, taken in before a mutation."""
        yield from placed.before
        for name in placed.by_hand:
            found = self._archive.find_individual(name)
            if found is not None and found.operator == BY_HAND:
                yield from self._candidate(name)

    def _candidate(self, name: str) -> Iterator[Line]:
        individual = self._archive.individual(name)
        yield {
            "kind": "candidate",
            "id": individual.id,
            "birth": individual.birth,
            "generation": individual.generation,
            "operator": individual.operator,
            "parent_ids": list(individual.parent_ids),
            "question_id": individual.question_id,
            "source": individual.source,
        }
        for order, key in self._orders[name]:
            record = self._archive.evaluation_json(name, key)
            yield {"kind": "evaluation", "id": name, "order": order, "record": parse_json(record or "null")}

    def _place(self, event: EventRecord) -> None:
        record = parse_json(event.record)
        line = {"kind": "event", "event": event.kind, "key": event.key, "record": record}
        if event.kind == ATTEMPT_EVENT:
            self._placed[record["number"]].after.append({"kind": ATTEMPT_EVENT, **record})
        elif event.kind == TOOL_CALL_EVENT:
            self._file({"kind": TOOL_CALL_EVENT, **record}, (record["number"], record["attempt"]))
        elif event.kind in (QUESTION_ADDED, KERNEL_ADDED):
            self._placed[record["number"]].before.append(line)
            if record.get("birth") is not None:
                self._placed[record["number"]].by_hand.append(individual_id(record["source"]))
        else:
            self._file(line, tuple(record[:2]) if event.kind == GIVEN_UP_EVENT else None)

    def _file(self, line: Line, request: tuple[int, int] | None) -> None:
        if request is None:
            self._placed[None].before.append(line)
        else:
            self._placed[request[0]].beside[request[1]].append(line)


def _all_after(placed: _Placed) -> Iterator[Line]:
    for attempt in sorted(placed.beside):
        yield from placed.beside[attempt]
    yield from placed.after


def _bank(files: Sequence[str]) -> Iterator[Line]:
    for question in load_bank([shipped_bank_path(), *map(Path, files)]):
        yield {"kind": "bank", "question": write_entry(question)}


def _end(checkpoint: Checkpoint | None, result: Mapping[str, Any] | None) -> Iterator[Line]:
    if checkpoint is not None:
        yield {
            "kind": "checkpoint",
            "generation": checkpoint.generation,
            "population": [vars(member) for member in checkpoint.population],
            "hall_of_fame": [vars(member) for member in checkpoint.hall_of_fame],
        }
    if result is not None:
        yield {"kind": "result", "result": result}
