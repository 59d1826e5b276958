"""measured/again/: a file for each sitting, with what the parents were in it and the children measured beside them.

A child is named with the checksum of its evaluation. So one that another sitting measured anew, or whose file was
carried over from another machine, is never taken for this sitting's.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitness.evaluation import Evaluation
from population.atomic_file import parse_json, strict_json, write_atomically
from population.run_folder import writing

SCHEMA = 1

_FOLDER = "again"  # in measured/


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """The parents' evaluations by their ids, and the checksums of their children's."""

    parents: Mapping[str, Evaluation]
    children: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives the equal sitting back."""
        parents = {name: evaluation.to_json() for name, evaluation in self.parents.items()}
        return {"schema": SCHEMA, "parents": parents, "children": dict(self.children)}

    @classmethod
    def from_json(cls, record: object) -> "Sitting":
        """The sitting that `to_json` wrote. Raises ValueError, KeyError, TypeError or AttributeError."""
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise ValueError(f"expected an object of schema {SCHEMA}")
        children = {str(name): str(checksum) for name, checksum in record["children"].items()}
        parents = {name: Evaluation.from_json(evaluation) for name, evaluation in record["parents"].items()}
        return cls(parents=parents, children=children)


class SittingFile:
    """The file of the sitting under way. It is there from the first child on, for before that it says nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parents: dict[str, Evaluation] = {}
        self._children: dict[str, str] = {}

    def add_parent(self, name: str, evaluation: Evaluation) -> None:
        """A parent was measured."""
        self._parents[name] = evaluation

    def add_child(self, name: str, evaluation: Evaluation) -> None:
        """A child was measured; to be called before its own file is written, so that none lies there without its
        sitting. One that is named and then lost is measured anew and has another checksum.

        Raises RunFolderError where the file cannot be written.
        """
        self._children[name] = checksum(strict_json(evaluation.to_json()))
        if not self._parents:
            return
        sitting = Sitting(parents=self._parents, children=self._children)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, strict_json(sitting.to_json()) + "\n")


def new_sitting(measured: Path) -> SittingFile:
    """A file of its own for a sitting that begins now, named by the time."""
    return SittingFile(measured / _FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json")


def read_sittings(measured: Path, note: Callable[[str], None]) -> dict[Path, Sitting]:
    """The sittings whose files lie there, the oldest first; `note` hears of files that are none."""
    found = {}
    for path in sorted((measured / _FOLDER).glob("*.json")):
        try:
            found[path] = Sitting.from_json(parse_json(path.read_bytes().decode("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            note(f"{path} is no sitting, or not whole ({error!r}); carry it again, or take it away")
    return found


def checksum(record: str) -> str:
    """What a sitting knows a child's evaluation by: of its record as the archive holds it, the hexadecimal SHA-256."""
    return hashlib.sha256(record.encode("utf-8")).hexdigest()
