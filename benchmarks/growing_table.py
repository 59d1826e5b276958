"""A table of evaluations that is measured in several sittings, each of which may be cut off anywhere."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fitness.backends.recorded import export_table, load_table
from fitness.evaluation import Evaluation
from fitness.evaluation_key import source_sha256
from fitness.faults import EnvironmentFault


class GrowingTable:
    """The evaluations in a table and in the file beside it to which a sitting adds a line at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        earlier = load_table(path) if path.exists() else ()
        self._held = {evaluation.source_sha256: evaluation for evaluation in (*earlier, *self._unfinished())}

    def evaluations(self, sources: Sequence[str]) -> list[Evaluation]:
        """What is known of these sources, in their order."""
        found = (self._held.get(source_sha256(source)) for source in sources)
        return [evaluation for evaluation in found if evaluation is not None]

    def missing(self, sources: Sequence[str]) -> list[str]:
        """Those of these sources that are yet to be measured."""
        return [source for source in sources if source_sha256(source) not in self._held]

    def add(self, evaluation: Evaluation) -> None:
        """Keep one more. Raises EnvironmentFault where the others were measured elsewhere."""
        first: Evaluation | None = next(iter(self._held.values()), None)
        if first is not None and (first.suite, first.environment) != (evaluation.suite, evaluation.environment):
            raise EnvironmentFault(
                f"{self._path}: measured on {first.suite}, {first.environment}; now {evaluation.suite}, "
                f"{evaluation.environment}: measure there, or name another table"
            )
        self._held[evaluation.source_sha256] = evaluation
        with self._part.open("a", encoding="utf-8") as part:
            part.write(json.dumps(evaluation.to_json(), allow_nan=False) + "\n")

    def save(self, sources: Sequence[str]) -> None:
        """Write the table of what is known of these sources; then nothing is left unfinished."""
        export_table(self.evaluations(sources), self._path)
        self._part.unlink(missing_ok=True)

    def _unfinished(self) -> list[Evaluation]:
        """Those of a sitting that was cut off; a line that has no end is dropped, from the file too."""
        if not self._part.exists():
            return []
        text = self._part.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._part.write_text(whole, encoding="utf-8")
        records: list[Mapping[str, object]] = [json.loads(line) for line in whole.splitlines()]
        return [Evaluation.from_json(record) for record in records]
