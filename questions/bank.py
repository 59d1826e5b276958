"""The bank: the questions that a search draws from, out of the shipped file and a user's own."""

import importlib.resources
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from questions.entry import BankError, read_entry
from questions.question import Question

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where PyYAML has it, is ten times as fast


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Questions in a fixed order, each id once. Raises ValueError for an id that stands twice."""

    questions: tuple[Question, ...]

    def __post_init__(self) -> None:
        ids = [question.id for question in self.questions]
        if len(set(ids)) != len(ids):
            raise ValueError(f"bank: ids that stand twice: {', '.join(sorted({i for i in ids if ids.count(i) > 1}))}")

    def __iter__(self) -> Iterator[Question]:
        return iter(self.questions)

    def __len__(self) -> int:
        return len(self.questions)

    def by_id(self, question_id: str) -> Question:
        """The question of that id. Raises KeyError where there is none."""
        for question in self.questions:
            if question.id == question_id:
                return question
        raise KeyError(f"the bank of {len(self)} questions has none with the id {question_id!r}")


def shipped_bank_path() -> Path:
    """The file of questions that comes with the package."""
    return Path(str(importlib.resources.files("questions") / "bank.yaml"))


def load_bank(paths: Sequence[Path]) -> Bank:
    """The questions of all the files, in order; pass `shipped_bank_path()` first to build on the shipped ones.

    An entry of a later file takes the place of an earlier one of the same id only where it says `override: true`.
    Raises BankError, which names the file and the entry, for anything that cannot be read, is unknown or stands twice.
    """
    questions: dict[str, Question] = {}
    for path in paths:
        questions.update(_read_file(path, questions))
    if not questions:
        read = ", ".join(str(path) for path in paths) or "no file at all"
        raise BankError(f"no questions in {read}; expected at least one (the shipped file is {shipped_bank_path()})")
    return Bank(questions=tuple(questions.values()))


def _read_file(path: Path, earlier: dict[str, Question]) -> dict[str, Question]:
    found: dict[str, Question] = {}
    for number, entry in enumerate(_entries(path), start=1):
        name = entry.get("id") if isinstance(entry, dict) else None
        where = f"{path}: entry {number}" + (f" ({name})" if isinstance(name, str) else "")
        override = _take_override(entry, where)
        question = read_entry(entry, where)
        if question.id in found:
            raise BankError(f"{where}: the id stands twice in this file; expected each id once")
        if (question.id in earlier) != override:
            raise BankError(f"{where}: {_OVERRIDE_FAULT[override]}")
        found[question.id] = question
    return found


_OVERRIDE_FAULT = {
    False: "the id is taken by an earlier file; choose another, or say `override: true` to replace that question",
    True: "`override: true`, but no earlier file has that id; expected the id of the question to replace",
}


def _take_override(entry: object, where: str) -> bool:
    """Removes the one key that is about the file and not about the question."""
    override = entry.pop("override", False) if isinstance(entry, dict) else False
    if not isinstance(override, bool):
        raise BankError(f"{where}, override: {override!r}; expected true or false")
    return override


def _entries(path: Path) -> list[object]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506  # a safe one
    except (OSError, UnicodeDecodeError) as error:
        raise BankError(f"{path}: cannot be read ({error}); expected a YAML file of questions") from error
    except yaml.YAMLError as error:
        raise BankError(f"{path}: not YAML ({error}); expected a list of questions") from error
    if not isinstance(content, list):
        raise BankError(f"{path}: {type(content).__name__}; expected a list of questions, each starting with `- id:`")
    return content
