"""Answers from a table of measurements taken elsewhere, so that a search can be replayed without the device.

The table is a JSON Lines file, one Evaluation a line, compressed where its name ends in .gz or .xz.
"""

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fitness.evaluation import Environment, Evaluation, Status
from fitness.evaluation_key import source_sha256
from fitness.faults import EnvironmentFault


class RecordedEvaluator:
    """Evaluates as `Evaluator` does, by looking a source up; the last record of a source counts.

    A source that is not there is UNSUPPORTED: nothing is known against it, it lies outside what can be judged here.
    INVALID would blame its text, and an exception would end a search that may go on with other candidates. Raises
    EnvironmentFault for a table that is empty, or whose records differ in suite, device, baseline or compiler.
    """

    def __init__(self, evaluations: Sequence[Evaluation]) -> None:
        if not evaluations:
            raise EnvironmentFault("the recorded table is empty; expected at least one evaluation")
        first = evaluations[0]
        for other in evaluations:
            if (other.suite, other.environment) != (first.suite, first.environment):
                raise EnvironmentFault(
                    f"the recorded table mixes measurements: {first.suite} on {first.environment} and {other.suite} on "
                    f"{other.environment}; make one table for each"
                )
        self._by_source = {evaluation.source_sha256: evaluation for evaluation in evaluations}
        self._suite, self.environment = first.suite, first.environment

    def evaluate(self, source: str) -> Evaluation:
        """The record of this very source."""
        digest = source_sha256(source)
        if digest in self._by_source:
            return self._by_source[digest]
        return Evaluation(
            key=hashlib.sha256(f"not recorded: {self._suite} {self.environment} {digest}".encode()).hexdigest(),
            source_sha256=digest, suite=self._suite, status=Status.UNSUPPORTED, environment=self.environment,
            reason=f"not among the {len(self._by_source)} sources of the recorded table; nothing is measured here",
        )  # fmt: skip

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """The records in the order of the sources; `on_done(index, evaluation)` hears of each."""
        evaluations = [self.evaluate(source) for source in sources]
        for index, evaluation in enumerate(evaluations):
            if on_done is not None:
                on_done(index, evaluation)
        return evaluations


def load_table(path: Path) -> tuple[Evaluation, ...]:
    """The evaluations of a table. Raises EnvironmentFault, naming the line, for anything else."""
    lines = _lines(path)
    return tuple(_evaluation(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1))


def table_environment(path: Path) -> Environment:
    """Where a table was measured. Raises EnvironmentFault as `load_table`, and for a table that holds nothing."""
    lines = _lines(path)
    if not lines:
        raise EnvironmentFault(f"the recorded table {path} is empty; expected at least one evaluation")
    return _evaluation(lines[0], f"{path}, line 1").environment


def export_table(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write a table that `load_table` reads. The same evaluations give the same bytes."""
    lines = [json.dumps(evaluation.to_json(), allow_nan=False, sort_keys=True) + "\n" for evaluation in evaluations]
    content = "".join(lines).encode()
    match path.suffix:
        case ".gz":
            content = gzip.compress(content, mtime=0)
        case ".xz":
            content = lzma.compress(content)
    path.write_bytes(content)


def _lines(path: Path) -> list[str]:
    try:
        return _decompress(path).decode().splitlines()
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise EnvironmentFault(f"the recorded table {path} cannot be read: {error}") from error


def _decompress(path: Path) -> bytes:
    content = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(content)
        case ".xz":
            return lzma.decompress(content)
    return content


def _evaluation(line: str, place: str) -> Evaluation:
    try:
        return Evaluation.from_json(json.loads(line, parse_constant=_refuse_constant))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(f"{place}: this is no evaluation: {error!r}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
