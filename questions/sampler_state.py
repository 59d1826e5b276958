"""What a sampler keeps across a checkpoint, to strict JSON and back."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from questions.credit import Tally
from questions.entry import BankError, read_entry, write_entry
from questions.question import Question

SCHEMA = 1
_FIELDS = ("schema", "rng", "tallies", "queue")


class SamplerStateError(ValueError):
    """A saved state is not one that this version wrote."""


@dataclass(frozen=True, kw_only=True)
class SamplerState:
    """The generator's state, every question's tally by id, and the questions that wait to be asked."""

    rng: tuple[Any, ...]
    tallies: Mapping[str, Tally]
    queue: tuple[Question, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives the equal state back."""
        version, words, gauss = self.rng
        return {
            "schema": SCHEMA,
            "rng": [version, list(words), gauss],
            "tallies": {question_id: tally.to_json() for question_id, tally in sorted(self.tallies.items())},
            "queue": [write_entry(question) for question in self.queue],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "SamplerState":
        """The state that `to_json` wrote. Raises SamplerStateError, naming the field, for anything else."""
        _check_fields(record)
        return cls(
            rng=_read_rng(record["rng"]),
            tallies=_read_tallies(record["tallies"]),
            queue=_read_queue(record["queue"]),
        )


def _check_fields(record: Mapping[str, Any]) -> None:
    if not isinstance(record, Mapping):
        raise SamplerStateError(f"sampler state: {type(record).__name__}; expected a mapping")
    if record.get("schema") != SCHEMA:
        raise SamplerStateError(f"sampler state: schema {record.get('schema')!r}; this version reads {SCHEMA}")
    if sorted(record) != sorted(_FIELDS):
        raise SamplerStateError(f"sampler state: fields {', '.join(sorted(record))}; expected {', '.join(_FIELDS)}")


def _read_rng(value: Any) -> tuple[Any, ...]:  # noqa: ANN401  # whatever it is, it is tried out
    try:
        version, words, gauss = value
        state = (version, tuple(words), gauss)
        random.Random().setstate(state)  # noqa: S311  # not for secrets
    except (TypeError, ValueError) as error:
        raise SamplerStateError(f"sampler state, rng: not a state of random.Random ({error})") from error
    return state


def _read_tallies(value: object) -> dict[str, Tally]:
    if not isinstance(value, Mapping):
        raise SamplerStateError(f"sampler state, tallies: {type(value).__name__}; expected a mapping from question ids")
    tallies = {}
    for question_id, record in value.items():
        try:
            tallies[str(question_id)] = Tally.from_json(record)
        except ValueError as error:
            raise SamplerStateError(f"sampler state, question {question_id}: {error}") from error
    return tallies


def _read_queue(value: object) -> tuple[Question, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise SamplerStateError(f"sampler state, queue: {type(value).__name__}; expected a list of questions")
    try:
        return tuple(read_entry(entry, f"sampler state, queue[{i}]") for i, entry in enumerate(value))
    except BankError as error:
        raise SamplerStateError(str(error)) from error
