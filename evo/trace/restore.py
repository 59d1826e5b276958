"""Traces as archives again, so that what reads runs reads traces too. A file may hold several, one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo.attempt_events import ATTEMPT_EVENT
from evo.reply_records import TOOL_CALL_EVENT
from evo.trace.trace_file import FIRST, Line, TraceError, read_all_lines
from population.archive import Archive, create_archive
from population.atomic_file import strict_json
from population.faults import RunFault
from population.individual import Individual
from population.records import (
    EvaluationRecord,
    EventRecord,
    PromptRecord,
    QuestionRecord,
    ReplyRecord,
    SpendRecord,
)
from population.run_folder import RunFolder, create_run_folder

_NOT_KEPT = ("bank", "checkpoint", "result")


def restore_runs(path: Path, root: Path) -> list[RunFolder]:
    """A folder under `root` for each trace in the file, with what its run's archive held and no checkpoint.

    Raises TraceError for a file that is no whole trace, or whose content no archive takes.
    """
    folders: list[RunFolder] = []
    told: list[tuple[int, Line]] = []
    for number, line in read_all_lines(path):
        if line["kind"] == FIRST and told:
            folders.append(_restore(told, path, root))
            told = []
        told.append((number, line))
    return [*folders, _restore(told, path, root)]


def _restore(told: list[tuple[int, Line]], path: Path, root: Path) -> RunFolder:
    number = told[0][0]
    try:
        folder = create_run_folder(root, str(told[0][1]["run"]))
        with create_archive(folder) as archive, archive.transaction():
            late = _Late()
            for place, line in told[1:]:
                number = place
                _record(archive, line["kind"], {key: value for key, value in line.items() if key != "kind"}, late)
            late.record(archive)
    except (KeyError, TypeError, ValueError, RunFault) as error:
        raise TraceError(f"{path}, line {number}: no archive takes it: {error!r}; export the run again") from error
    return folder


@dataclass
class _Late:
    """What an archive has in an order of its own, which is not that of the story."""

    evaluations: dict[int, EvaluationRecord] = field(default_factory=dict)
    spend: dict[int, SpendRecord] = field(default_factory=dict)

    def record(self, archive: Archive) -> None:
        for order in sorted(self.evaluations):
            archive.record_evaluation(self.evaluations[order])
        for order in sorted(self.spend):
            archive.record_spend(self.spend[order])


def _record(archive: Archive, kind: str, rest: Mapping[str, Any], late: _Late) -> None:
    match kind:
        case "candidate":
            archive.record_individual(Individual(**{**rest, "parent_ids": tuple(rest["parent_ids"])}))
        case "evaluation":
            late.evaluations[rest["order"]] = _evaluation(rest["id"], rest["record"])
        case "question":
            archive.record_question(QuestionRecord(**rest))
        case "prompt":
            archive.record_prompt(PromptRecord(**rest))
        case "reply":
            archive.record_reply(ReplyRecord(**rest))
        case "event":
            record = strict_json(rest["record"])
            archive.record_event(EventRecord(kind=rest["event"], key=rest["key"], record=record))
        case "attempt" | "tool_call":
            event = ATTEMPT_EVENT if kind == "attempt" else TOOL_CALL_EVENT
            archive.record_event(EventRecord(kind=event, record=strict_json(rest)))
        case "spend":
            late.spend[rest["order"]] = SpendRecord(key=rest["spent_on"], kind=rest["what"], amount=rest["amount"])
        case _ if kind not in _NOT_KEPT:
            raise ValueError(f"the kind {kind!r} is unknown")


def _evaluation(individual: str, record: Mapping[str, Any]) -> EvaluationRecord:
    return EvaluationRecord(
        individual_id=individual, key=record["key"], status=record["status"], geomean=record["geomean"],
        record=strict_json(record),
    )  # fmt: skip
