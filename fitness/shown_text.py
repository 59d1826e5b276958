"""Text of others in a form that may be shown: on a terminal, in a record, in the next prompt."""

import re

_MOST = 8000
# Control characters but line ends and tabs, Unicode's line ends and marks of writing direction, halves of a pair.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown_text(text: str, most: int = _MOST) -> str:
    """The text with a question mark for every character that could steer a terminal, cut to `most` characters."""
    kept = text if len(text) <= most else f"{text[:most]} … and {len(text) - most} characters more"
    return _STEERING.sub("?", kept)
