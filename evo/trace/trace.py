"""A trace as a replay needs it, read from its file and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo.answerers.answerer import Reply
from evo.history import Attempt, Outcome
from evo.reply_records import TOOL_CALL_EVENT, to_reply
from evo.run_settings import SETTINGS_EVENT
from evo.trace.trace_file import Line, TraceError, read_lines
from fitness.evaluation import Evaluation
from population.atomic_file import strict_json
from population.individual import BY_HAND, SEED
from population.records import EventRecord, ReplyRecord, SpendRecord
from questions.bank import Bank
from questions.entry import BankError, read_entry

_TOLD = ("prompt", "candidate")  # these tell the story; a replay makes them anew


@dataclass(kw_only=True)
class Trace:
    """What a run was, and what came to it from outside: replies, evaluations, people's questions, costs."""

    run: str = ""
    template: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    bank: Bank = field(default_factory=lambda: Bank(questions=()))  # the questions that were drawn from
    seeds: list[str] = field(default_factory=list)
    replies: dict[tuple[int, int], Reply] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)  # by number; of two the later one counts
    evaluations: dict[str, tuple[int, Evaluation]] = field(default_factory=dict)  # with its order, by the source's hash
    events: list[EventRecord] = field(default_factory=list)
    spend: dict[int, SpendRecord] = field(default_factory=dict)  # by its order
    last_question: int = -1  # the greatest number that a question was asked under
    last_generation: int = 0  # the greatest generation with a candidate, complete or not
    checkpoint: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None

    @property
    def generations(self) -> int:
        """How many generations came to their end."""
        return max((attempt.generation for attempt in self.attempts.values()), default=0)

    def last_number(self, generation: int) -> int | None:
        """The greatest number of a generation's questions; None for one that did not come to its end."""
        numbers = [attempt.number for attempt in self.attempts.values() if attempt.generation == generation]
        return max(numbers, default=None)

    def unanswered(self, number: int) -> str | None:
        """Why a question without a reply got none, where the search went on all the same; else None."""
        attempt = self.attempts.get(number)
        if attempt is not None:
            return attempt.detail if attempt.outcome is Outcome.UNANSWERED else None
        went_on = self.last_generation > self.generations  # the generation under way had its children made
        return "no reply (the trace has none)" if went_on else None


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises TraceError for anything but a whole one of this schema."""
    trace = Trace()
    for number, line in read_lines(path):
        try:
            _take(trace, line)
        except (KeyError, TypeError, ValueError, AttributeError, BankError) as error:
            raise TraceError(f"{path}, line {number}: no {line['kind']} of a trace: {error!r}; export again") from error
    if not trace.settings or not trace.seeds or not len(trace.bank):
        raise TraceError(f"{path}: the run that it tells of had not begun: it holds no settings or no seed")
    return trace


def _take(trace: Trace, line: Line) -> None:
    rest = {name: value for name, value in line.items() if name != "kind"}
    match line["kind"]:
        case "trace":
            trace.run, trace.template = str(rest["run"]), rest["template"]
        case "bank":
            trace.bank = Bank(questions=(*trace.bank, read_entry(rest["question"], "its entry")))
        case "event" if rest["event"] == SETTINGS_EVENT:
            trace.settings = dict(rest["record"])
        case "event":
            _keep_event(trace, rest["event"], rest["record"], rest["key"])
        case "tool_call":
            _keep_event(trace, TOOL_CALL_EVENT, rest)
        case "spend":
            record = SpendRecord(key=rest["spent_on"], kind=rest["what"], amount=rest["amount"])
            trace.spend[rest["order"]] = record
        case "candidate" if rest["operator"] != BY_HAND:  # what came by hand stands in its event
            trace.last_generation = max(trace.last_generation, rest["generation"])
            if rest["operator"] == SEED:
                trace.seeds.append(rest["source"])
        case "evaluation":
            evaluation = Evaluation.from_json(rest["record"])
            trace.evaluations[evaluation.source_sha256] = (rest["order"], evaluation)
        case "question":
            trace.last_question = max(trace.last_question, rest["number"])
        case "reply":
            reply = ReplyRecord(**rest)
            trace.replies[reply.number, reply.attempt] = to_reply(reply)
        case "attempt":
            trace.attempts[rest["number"]] = Attempt.from_json(rest)
        case "checkpoint":
            trace.checkpoint = rest
        case "result":
            trace.result = dict(rest["result"])
        case kind if kind not in _TOLD:
            raise ValueError(f"the kind {kind!r} is unknown")


def _keep_event(trace: Trace, kind: str, record: object, key: str | None = None) -> None:
    trace.events.append(EventRecord(kind=kind, key=key, record=strict_json(record)))
