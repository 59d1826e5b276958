"""Characters that word processors and chat windows put in the place of those that a compiler reads."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from evo.unreadable import UnreadableReply

_BLANKS: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_INVISIBLE: Final = (
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # marks of writing direction
)
_DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f"
_SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b"
_HYPHENS: Final = "\u2010\u2011\u2012\u2013\u2212"
_PLAIN: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(_BLANKS, " ")
    | dict.fromkeys(_INVISIBLE, "")
    | dict.fromkeys(_DOUBLE_QUOTES, '"')
    | dict.fromkeys(_SINGLE_QUOTES, "'")
    | dict.fromkeys(_HYPHENS, "-")
)
_ODD: Final = re.compile(f"[{''.join(_PLAIN)}]")
_NEVER_IN_CODE: Final = re.compile("[\x00-\x08\x0d-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with blanks, quotes and hyphens as a keyboard has them, and nothing invisible."""
    if text.isascii():  # known without looking, and true of most lines
        return text
    return _ODD.sub(lambda odd: _PLAIN[odd[0]], text)  # str.translate is far slower


def mended(code: str) -> str:
    """The code as `plain` gives it, comments and manifest included.

    Comments too, since an edit block is a fragment: nobody can tell whether it begins inside one, and a comment means
    the same in plain characters. Raises UnreadableReply where plain characters could mean something else: a curly
    double quote inside a straight-quoted string; and for characters that no source holds: control characters, lone
    surrogates, Unicode's line separators.
    """
    stray = _NEVER_IN_CODE.search(code)
    if stray:
        raise UnreadableReply(f"the code holds the character U+{ord(stray[0]):04X}; write plain text")
    for line in code.split("\n"):
        quoted = line.split('"')[1:-1:2]
        if any(quote in text for text in quoted for quote in _DOUBLE_QUOTES):
            raise UnreadableReply(f"a curly quote stands inside a string, in the line {line.strip()[:120]!r}")
    return plain(code)
