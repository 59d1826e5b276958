"""What docs/questions.md shows must hold."""

import re
from pathlib import Path

import pytest
import yaml

from questions.entry import read_entry
from questions.lint import lint
from questions.question import Layer, Moment
from questions.slots import SLOTS

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_example_is_a_good_question(page, make_bank):
    example = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    bank = make_bank(read_entry(example[0], "the example"))
    assert [finding for finding in lint(bank) if finding.rule != "coverage"] == []


def test_every_slot_is_listed(page):
    assert sorted(re.findall(r"^\| `\{(\w+)\}` \|", page, re.MULTILINE)) == sorted(SLOTS)


def test_every_moment_and_layer_is_named(page):
    assert [moment for moment in Moment if f"`{moment}`" not in page] == []
    assert [layer for layer in Layer if f"`{layer}`" not in page] == []
