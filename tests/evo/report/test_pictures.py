"""Pictures that live by the page's colours, hold no style of their own, and lead somewhere."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from evo.report.account import Account
from evo.report.pictures import family_tree, require_pictures, side_by_side, way_to_the_best
from evo.report.reading import read_account
from evo.report.svg import COLOURS
from evo.settings import ConfigError
from population.run_folder import RunFolder


@pytest.fixture(scope="module")
def account(bred: RunFolder) -> Account:
    return read_account(bred, now=0.0)


def elements(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter())


def test_colours_are_the_pages_and_styles_are_attributes(account: Account) -> None:
    for drawn in (way_to_the_best(account, "a"), family_tree(account, "b"), side_by_side({"/": account}, "c")):
        assert all("style" not in element.attrib for element in elements(drawn.svg))
        painted = {element.get(name) for element in elements(drawn.svg) for name in ("fill", "stroke")}
        assert painted - {None, "none"} <= {f"var({variable})" for variable in COLOURS.values()}


def test_milestones_and_the_champions_line_are_links(account: Account) -> None:
    way, tree = (elements(draw(account, "x").svg) for draw in (way_to_the_best, family_tree))
    assert [e.get("href") for e in way if e.tag == "a"] == [f"#k-{each.kernel}" for each in account.milestones]
    assert [e.get("href") for e in tree if e.tag == "a"] == [f"#k-{step.kernel}" for step in account.line]
    assert [e.text for e in tree if e.tag == "title"] == [
        f"{step.kernel}: {step.geomean:.4f} ×" for step in account.line
    ]


def test_the_failures_are_counted_beside_their_rows(account: Account) -> None:
    texts = [e.text for e in elements(way_to_the_best(account, "x").svg) if e.tag == "text"]
    failures = [f"{kind} {count}" for kind, count in account.statuses.items() if kind != "PASSED"]
    assert len(failures) == 4
    assert set(failures) < set(texts)


def test_the_same_account_gives_the_same_picture(account: Account) -> None:
    assert way_to_the_best(account, "x") == way_to_the_best(account, "x")


def test_ids_of_two_pictures_differ(account: Account) -> None:
    named = [set(re.findall(r' id="([^"]+)"', draw(account, name).svg)) for draw, name in
             ((way_to_the_best, "way"), (family_tree, "tree"))]  # fmt: skip
    assert all(named)
    assert named[0] & named[1] == set()


def test_names_that_xml_or_mathematics_would_stumble_over(account: Account) -> None:
    odd = replace(account, environments=tuple(replace(e, baseline="$\\frac{\x00\x1b]") for e in account.environments))
    assert "speedup over $\\frac{]" in way_to_the_best(odd, "x").svg


def test_without_matplotlib_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"needs matplotlib, which is not installed: pip install"):
        require_pictures(lambda name: None)
