"""Reading a page as a browser would: its elements, its texts, what its policy lets in."""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(kw_only=True)
class Element:
    """One element with its attributes and all the text inside it."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass(kw_only=True)
class Parsed(HTMLParser):
    """Every element of a page in the order in which they begin."""

    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag=tag, attributes=dict(attrs))
        self.elements.append(element)
        self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag=tag, attributes=dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The elements of a tag with these attributes; `class_` stands for class."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            each
            for each in self.elements
            if each.tag == tag and all(each.attributes.get(name) == value for name, value in wanted.items())
        ]


def parsed(html: str) -> Parsed:
    """The page's elements."""
    page = Parsed()
    page.feed(html)
    page.close()
    return page


def rows_of(html: str, caption: str) -> list[list[str]]:
    """The cells' texts of the table whose caption begins so, row by row."""
    [table] = [part for part in html.split("<table") if f"<caption>{caption}" in part]
    body = table.partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("<tr>")[1:]]
    return [[" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in row] for row in rows]


def inline_hash(html: str, tag: str) -> str:
    """What a policy must name for the page's one inline element of this tag to count."""
    [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
