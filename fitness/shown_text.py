"""Text of others in a form that may be shown: on a terminal, in a record, in the next prompt."""

_MOST = 8000


def shown_text(text: str, most: int = _MOST) -> str:
    """The text with a question mark for every character that could steer a terminal, cut to `most` characters.

    Line ends and tabs stay; so do letters of any language.
    """
    kept = text if len(text) <= most else f"{text[:most]} … and {len(text) - most} characters more"
    if kept.isprintable():
        return kept
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in kept)
