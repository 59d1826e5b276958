"""What `evo COMMAND --help` shows: a command's page out of what `evo/help_pages.py` says of it."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evo.data import conf_folder

_WIDTH = 100
_INDENT = 26  # at which what a word means begins
_LIST_INDENT = 38  # the same in the list of commands
_FURTHER = (
    "`evo COMMAND --help` tells more of a command, `evo --version` the version.",
    "`evo evolve --cfg job` shows every option with its value; the files in conf/ explain them.",
    "Exit code 2: the environment or the command line is at fault, and the last line says how.",
)
_ALL_OPTIONS = "evo evolve --cfg job shows every key=value; the files in conf/ explain them."


@dataclass(frozen=True, kw_only=True)
class Word:
    """An argument or option of a command, with its default where it has one.

    One that is a group of conf/ is shown with the choices that lie there.
    """

    name: str
    meaning: str
    default: str | None = None

    @property
    def shown(self) -> str:
        """As it is written on a command line, with its default for a value."""
        return self.name if self.default is None else f"{self.name}={self.default}"


@dataclass(frozen=True, kw_only=True)
class HelpPage:
    """What is told of a command: `summary` in the list of all, the rest on its own page."""

    arguments: str
    summary: str
    does: str
    words: Sequence[Word] = ()
    examples: Sequence[str] = ()
    configured: bool = False  # it takes the key=value of conf/


def help_of_all(pages: Mapping[str, HelpPage]) -> str:
    """Every command in a line."""
    lines = [f"  {name} {page.arguments}".ljust(_LIST_INDENT) + page.summary for name, page in pages.items()]
    return "\n".join(["usage: evo COMMAND [arguments]", "", *lines, "", *_FURTHER])


def help_text(name: str, page: HelpPage) -> str:
    """A command's page: how it is called, what it does, its words with their defaults, an example."""
    blocks = [[f"usage: evo {name} {page.arguments}"], textwrap.wrap(page.does, _WIDTH)]
    blocks.append([line for word in page.words for line in _lines_of(word)])
    blocks.append([_ALL_OPTIONS] if page.configured else [])
    blocks.append([f"{'example:' if not place else '':10}{each}" for place, each in enumerate(page.examples)])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _lines_of(word: Word) -> list[str]:
    choices = " | ".join(_choices(word.name))
    text = f"{choices}: {word.meaning}" if choices else word.meaning
    meaning = textwrap.wrap(text, _WIDTH - _INDENT, break_long_words=False)
    first = f"  {word.shown}"
    if len(first) < _INDENT - 1:
        return [first.ljust(_INDENT) + meaning[0], *(" " * _INDENT + line for line in meaning[1:])]
    return [first, *(" " * _INDENT + line for line in meaning)]


def _choices(name: str) -> list[str]:
    """The files of a group of conf/; none where there is no such group."""
    return sorted(path.stem for path in (conf_folder() / name).glob("*.yaml")) if name.isidentifier() else []
