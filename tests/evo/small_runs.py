"""Makers of whole runs by hand: an archive with the figures that a test sets, and nothing that it does not need."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_records import attempt, failed, individual, passed

from evo.attempt_events import ATTEMPT_EVENT
from evo.evaluation_records import record_evaluation
from evo.history import Outcome
from evo.run_settings import SETTINGS_EVENT
from fitness.evaluation import Evaluation, Status
from population.archive import create_archive
from population.atomic_file import strict_json
from population.individual import Individual
from population.records import EventRecord, QuestionRecord, ReplyRecord, SpendRecord
from population.run_folder import RunFolder, create_run_folder

SEED = "seed\nshared line\n"
FAILURE = 0.0


def write_run(
    root: Path, name: str, geomeans: Sequence[float], *, usd: float = 0.0, lost_usd: float = 0.0,
    settings: Mapping[str, Any] | None = None, unreadable: int = 0, asked_only: int = 0,
) -> RunFolder:  # fmt: skip
    """A run whose evaluations came out so, the seed first; each question cost `usd`, the first `lost_usd` more.

    Every child's parent is the seed. After them come questions without a readable reply, and such as wait for one.
    """
    folder = create_run_folder(root, name)
    defaults = {"style.kind": "question", "answerer.kind": "openai", "rng_seed": 0, "suite": "tiny"}
    with create_archive(folder) as archive:
        record = strict_json({**defaults, **(settings or {})})
        archive.record_event(EventRecord(kind=SETTINGS_EVENT, key="run", record=record))
        parent = replace(individual(SEED, 0), birth=-1)
        if geomeans:
            _judge(archive, parent, geomeans[0])
        for number in range(max(0, len(geomeans) - 1) + unreadable + asked_only):
            layer = ("memory", "launch")[number % 2]
            archive.record_question(QuestionRecord(
                number=number, question_id=f"q{number}", moment="any", layer=layer, style="question", text="Why?",
                origin="bank",
            ))  # fmt: skip
            if number >= len(geomeans) - 1 + unreadable:
                continue
            archive.record_reply(ReplyRecord(
                number=number, attempt=0, text="", model="m", finish_reason="stop", prompt_tokens=1,
                completion_tokens=1, cost_usd=usd, estimated=False,
            ))  # fmt: skip
            child = individual(f"{SEED}{name} {number}\n", number, parent) if number < len(geomeans) - 1 else None
            if child:
                _judge(archive, child, geomeans[number + 1])
            asked = attempt(
                number, (parent,), child, layer=layer, outcome=Outcome.CHILD if child else Outcome.UNREADABLE
            )
            archive.record_event(EventRecord(kind=ATTEMPT_EVENT, record=strict_json(asked.to_json())))
        if lost_usd:
            archive.record_spend(SpendRecord(key="without a reply 0/0, 0", kind="cost_usd", amount=lost_usd))
    return folder


def _judge(archive: Any, one: Individual, geomean: float) -> None:
    evaluation: Evaluation = (
        passed(one.source, {"only": geomean}) if geomean else failed(one.source, Status.INCORRECT, "wrong")
    )
    archive.record_individual(one)
    record_evaluation(archive, one.id, evaluation)
