"""From the argument of a tool to the source of a draft."""

import re

from evo.fences import take_apart
from evo.reply import read_reply
from evo.unreadable import NoChange

_PARENT = "parent"
_BACKTICKS = re.compile(r"`+")


def read_draft(text: str, parent_source: str) -> str:
    """The draft's source: a whole file, fenced or not, or edit blocks against the parent, or the word "parent".

    A draft that changes nothing is the parent. Raises UnreadableReply, as for a reply.
    """
    if text.strip().lower() == _PARENT:
        return parent_source
    layout = take_apart(text)
    try:
        return read_reply(text if layout.fences or layout.blocks else _fenced(text), parent_source, "stop").source
    except NoChange:
        return parent_source


def _fenced(text: str) -> str:
    fence = "`" * (1 + max([2, *map(len, _BACKTICKS.findall(text))]))
    return f"{fence}cuda\n{text}\n{fence}\n"
