"""A row of the archive as the record that it was made of."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from population.archive_schema import BIRTHS
from population.faults import ArchiveError
from population.individual import Individual, individual_id
from population.records import Birth, ReplyRecord


def birth_of(row: Mapping[str, Any]) -> Birth:
    """The birth in a row of BIRTHS."""
    return Birth(**{**row, "parent_ids": tuple(json.loads(row["parent_ids"]))})


def individual_of(row: Mapping[str, Any], archive: Path) -> Individual:
    """The individual in a row of CANDIDATES, its fitness empty. Raises ArchiveError where source and id disagree."""
    birth = birth_of({column: row[column] for column in BIRTHS.columns})
    if birth.id != individual_id(row["source"]):
        raise ArchiveError(f"{archive}: damaged: the source of {birth.id} has another id; restore a copy")
    return Individual(
        id=birth.id,
        source=row["source"],
        birth=birth.birth,
        generation=birth.generation,
        operator=birth.operator,
        parent_ids=birth.parent_ids,
        question_id=birth.question_id,
    )


def reply_of(row: Mapping[str, Any]) -> ReplyRecord:
    """The reply in a row of REPLIES."""
    return ReplyRecord(**{**row, "estimated": bool(row["estimated"]), "used_tools": bool(row["used_tools"])})
