"""What a command's help tells, and that it is so."""

from typing import Any

import pytest
import yaml

from evo.cli import COMMANDS
from evo.commands.watch import PORT
from evo.compare.outcomes import Outcome
from evo.data import conf_folder
from evo.help import HelpPage, Word, help_text
from evo.help_pages import HELP_PAGES
from evo.report.server import LOOPBACK
from evo.run_settings import flatten_settings
from evo.settings import compose_config, parse_overrides

GROUPS = {path.name for path in conf_folder().iterdir() if path.is_dir()}
NO_OPTIONS = {"-m", "KERNEL.cu", "--json", "RUN", "n=8"}


def test_a_page_has_the_usage_the_words_and_the_examples() -> None:
    page = HelpPage(
        arguments="FILE [n=8]", summary="counts", does="Counts.",
        words=(Word(name="FILE", meaning="what to read"), Word(name="n", default="8", meaning="how many")),
        examples=("evo count a", "evo count b n=2"),
    )  # fmt: skip
    assert help_text("count", page).splitlines() == [
        "usage: evo count FILE [n=8]",
        "",
        "Counts.",
        "",
        "  FILE                    what to read",
        "  n=8                     how many",
        "",
        "example:  evo count a",
        "          evo count b n=2",
    ]


def test_a_group_is_shown_with_its_choices_and_all_options_with_the_way_to_them() -> None:
    page = HelpPage(
        arguments="", summary="", does="Judges.", configured=True,
        words=(Word(name="pool", default="local", meaning="whose GPUs"),),
    )  # fmt: skip
    text = help_text("judge", page)
    assert "  pool=local              local | ray: whose GPUs\n" in text
    assert "evo evolve --cfg job shows every key=value" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_no_page_is_a_wall(name: str) -> None:
    page = HELP_PAGES[name]
    lines = help_text(name, page).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 50
    assert page.examples
    assert all(example.startswith(f"evo {name}") for example in page.examples)


def configured_words() -> list[Any]:
    pages = [(name, page) for name, page in HELP_PAGES.items() if page.configured]
    words = [(name, word) for name, page in pages for word in page.words if word.name not in NO_OPTIONS]
    return [pytest.param(word, id=f"{name}-{word.name}") for name, word in words]


@pytest.mark.parametrize("word", configured_words())
def test_the_defaults_of_options_are_those_of_conf(word: Word) -> None:
    if word.name in GROUPS:
        listed = yaml.safe_load((conf_folder() / "config.yaml").read_text(encoding="utf-8"))["defaults"]
        defaults = {group: choice for each in listed if isinstance(each, dict) for group, choice in each.items()}
    else:
        defaults = flatten_settings(compose_config([]))
    assert word.default == ("null" if defaults[word.name] is None else str(defaults[word.name]))


def test_evolve_tells_of_every_group_that_has_a_choice() -> None:
    told = {word.name for word in HELP_PAGES["evolve"].words}
    assert {name for name in GROUPS if len(list((conf_folder() / name).glob("*.yaml"))) > 1} <= told


def default_of(command: str, name: str) -> str | None:
    [word] = [word for word in HELP_PAGES[command].words if word.name == name]
    return word.default


def test_the_defaults_of_the_other_commands_are_theirs() -> None:
    assert (default_of("watch", "port"), default_of("watch", "host")) == (str(PORT), LOOPBACK)
    assert default_of("compare", "outcome") == Outcome.EQUAL_EVALUATIONS
    assert "which is 6" in help_text("ask", HELP_PAGES["ask"])
    assert compose_config([]).evolution.lambda_ == 6


def test_ask_tells_of_what_a_run_by_files_cannot_begin_without() -> None:
    told = [word.name for word in HELP_PAGES["ask"].words]
    assert told == ["RUN", "n=8", "seeds", "suite", "answerer.model"]
    [beginning, _] = HELP_PAGES["ask"].examples
    options = {override.get_key_element() for override in parse_overrides(beginning.split()[4:])}
    assert options == {"seeds", "suite", "answerer.model"}


@pytest.mark.parametrize("example", HELP_PAGES["evolve"].examples)
def test_examples_of_evolve_are_options(example: str) -> None:
    words = [word for word in example.split()[2:] if word != "-m"]
    assert all(override.get_key_element() in {*GROUPS, *flatten_settings(compose_config([]))}
               for override in parse_overrides(words))  # fmt: skip
