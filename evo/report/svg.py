"""A picture of matplotlib's as a part of a page: in the page's colours and fonts, with links that a keyboard reaches.

Matplotlib writes SVG with its own fonts, fixed colours and style attributes; a page with a strict policy refuses those
attributes, and a dark page cannot use those colours. So styles become attributes, and colours become CSS variables.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Mapping[str, str] = {  # what a picture draws with: the page's variables under names that matplotlib takes
    "#000001": "--ink",
    "#000002": "--muted",
    "#000003": "--rule",
    "#000004": "--accent",
    "#000005": "--soft",
    "#000006": "--bad",
    "#000007": "--surface",
    "#000011": "--series-1",
    "#000012": "--series-2",
    "#000013": "--series-3",
    "#000014": "--series-4",
    "#000015": "--series-5",
    "#000016": "--series-6",
    "#000017": "--series-7",
    "#000018": "--series-8",
}
_FROM_STYLE = ("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
               "fill-opacity", "stroke-opacity", "font-size", "text-anchor", "font-weight")  # fmt: skip
_DECIMALS = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture for a page."""

    svg: str  # an <svg> element with what it shows in words as its label, all texts and attributes escaped


def colour(name: str) -> str:
    """What matplotlib draws with where the page shall use its variable `--name`."""
    return next(code for code, variable in COLOURS.items() if variable == f"--{name}")


def picture(figure: "Figure", name: str, label: str, links: Mapping[str, str]) -> Picture:
    """The figure as inline SVG; `name` is unique on a page, `links` gives each link's words by its "#…" address."""
    import matplotlib as mpl

    content = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata=nothing, transparent=True)
    root = ElementTree.fromstring(content.getvalue())  # noqa: S314  # matplotlib's own, made just now
    _tidy(root, links)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "group", "aria-label": label}
    return Picture(svg=ElementTree.tostring(root, encoding="unicode"))


def _tidy(root: ElementTree.Element, links: Mapping[str, str]) -> None:
    used = {found for each in root.iter() for value in each.attrib.values() for found in _REFERENCE.findall(value)}
    for element in list(root.iter()):  # links get titles on the way
        element.tag = element.tag.partition("}")[2]
        element.text = element.text if element.tag == "text" else None
        element.tail = None
        for child in list(element):
            if child.tag.endswith(("metadata", "style")):
                element.remove(child)
        _plain_attributes(element, used)
        if element.tag == "a":
            _make_link(element, links)
        if element.get("class", "").startswith("matplotlib.axis"):
            element.attrib["aria-hidden"] = "true"  # the table beside the picture says it better


def _plain_attributes(element: ElementTree.Element, used: set[str]) -> None:
    attributes = {key.partition("}")[2] or key: value for key, value in element.attrib.items()}
    styles = dict(part.split(":", 1) for part in attributes.pop("style", "").split(";") if ":" in part)
    for key, value in styles.items():
        if key.strip() in _FROM_STYLE:
            attributes[key.strip()] = _themed(value.strip())
    name = attributes.get("id")
    if name is not None and name not in used:
        attributes["class"] = attributes.pop("id")
    for key in ("d", "x", "y", "transform", "width", "height"):
        if key in attributes:
            attributes[key] = " ".join(_DECIMALS.sub(_rounded, attributes[key]).split())
    element.attrib = attributes


def _make_link(element: ElementTree.Element, links: Mapping[str, str]) -> None:
    address = element.attrib["href"]
    element.attrib = {"href": address, "aria-label": links[address]}
    title = ElementTree.Element("title")
    title.text = links[address]
    element.insert(0, title)


def _themed(value: str) -> str:
    return f"var({COLOURS[value]})" if value in COLOURS else value


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
