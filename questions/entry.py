"""One entry of a bank's file, read strictly: every error names the place, what came and what was expected."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from questions.question import Layer, Moment, Question
from questions.slots import SLOTS, slots_in

TARGETS = ("portable", "sm_80", "sm_90a", "sm_100a")
PHRASINGS = ("text", "imperative", "information", "prescription")  # what a model may be shown; these hold the slots

_OPTIONAL = frozenset({"prescription", "origin"})
_KEYS = tuple(field.name for field in fields(Question))
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class BankError(Exception):
    """A file of questions cannot be used as it is."""


def read_entry(entry: object, where: str) -> Question:
    """The question that an entry describes; `where` names the entry in errors. Raises BankError."""
    if not isinstance(entry, Mapping):
        raise BankError(f"{where}: {_came(entry)}; expected a mapping with the keys {', '.join(_KEYS)}")
    for key in entry:
        if key not in _KEYS:
            raise BankError(f"{where}: unknown key {key!r}{nearest(key, _KEYS)}")
    missing = [key for key in _KEYS if key not in entry and key not in _OPTIONAL]
    if missing:
        raise BankError(f"{where}: {', '.join(missing)} missing; expected all of {', '.join(_KEYS)}, "
                        f"of which only {' and '.join(sorted(_OPTIONAL))} may be left out")  # fmt: skip
    read: dict[str, Any] = {key: _READERS.get(key, _text)(entry[key], f"{where}, {key}") for key in entry}
    question = Question(**read)
    _check_slots(question, where)
    return question


def write_entry(question: Question) -> dict[str, Any]:
    """The entry, in plain YAML and JSON types, that `read_entry` reads back as the equal question."""
    entry: dict[str, Any] = {key: getattr(question, key) for key in _KEYS}
    entry["layer"] = str(question.layer)
    entry["moments"] = [str(moment) for moment in question.moments]
    entry["targets"] = list(question.targets)
    return entry


def nearest(word: object, words: Sequence[str]) -> str:
    """The end of a message about a word: "; did you mean …?", or what is allowed where nothing is near."""
    close = difflib.get_close_matches(str(word), words, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(words)}"


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BankError(f"{where}: {_came(value)}; expected text (in quotes if it holds a colon or a brace)")
    return " ".join(value.split())


def _identifier(value: object, where: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BankError(f"{where}: {_came(value)}; expected lower-case words joined by hyphens, as in 'wall-or-kernel'")
    return value


def _prescription(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _layer(value: object, where: str) -> Layer:
    return Layer(_one_of(value, [str(layer) for layer in Layer], where))


def _moments(value: object, where: str) -> tuple[Moment, ...]:
    return tuple(Moment(word) for word in _several_of(value, [str(moment) for moment in Moment], where))


def _targets(value: object, where: str) -> tuple[str, ...]:
    return _several_of(value, TARGETS, where)


def _several_of(value: object, words: Sequence[str], where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BankError(f"{where}: {_came(value)}; expected a list of one or more of {', '.join(words)}")
    chosen = tuple(_one_of(word, words, where) for word in value)
    if len(set(chosen)) != len(chosen):
        raise BankError(f"{where}: {_came(value)}; expected each word once")
    return chosen


def _one_of(value: object, words: Sequence[str], where: str) -> str:
    if not isinstance(value, str) or value not in words:
        raise BankError(f"{where}: {_came(value)}{nearest(value, words)}")
    return value


def _check_slots(question: Question, where: str) -> None:
    for key in PHRASINGS:
        for name in sorted(slots_in(getattr(question, key) or "") - SLOTS.keys()):
            raise BankError(f"{where}, {key}: unknown slot {name!r}{nearest(name, tuple(SLOTS))}")


def _came(value: object) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 80 else shown[:79] + '…'}"


_READERS: Mapping[str, Callable[[object, str], object]] = {
    "id": _identifier,
    "layer": _layer,
    "moments": _moments,
    "targets": _targets,
    "prescription": _prescription,
}
