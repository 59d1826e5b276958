"""A comparison as files for other programs: one row a run or shot as CSV, everything as strict JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evo.compare.outcomes import RunOutcome
from evo.compare.shot_summary import ShotComparison
from evo.compare.shots import Shot
from evo.compare.summary import Comparison
from evo.run_settings import flatten
from population.atomic_file import strict_json

SCHEMA = 1


def as_json(
    comparison: Comparison | ShotComparison, conclusions: Sequence[str], cautions: Sequence[str]
) -> str:  # fmt: skip
    """Everything, with what was said of it in words."""
    record = {"schema": SCHEMA, **asdict(comparison), "conclusions": list(conclusions), "cautions": list(cautions)}
    return strict_json(record, sort_keys=False, indent=2) + "\n"


def as_csv(outcomes: Sequence[RunOutcome] | Sequence[Shot]) -> str:
    """A header and one row a run or shot; empty where it has no such figure."""
    rows = [_row(outcome) for outcome in outcomes]
    columns = dict.fromkeys(column for row in rows for column in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(outcome: RunOutcome | Shot) -> dict[str, Any]:
    flat = flatten(asdict(outcome))
    return {key.replace(".", "_"): value for key, value in flat.items() if not (key.endswith("interval") and not value)}
