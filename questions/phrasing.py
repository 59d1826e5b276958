"""The same content as a question, an order, a fact or a named change: what a comparison of styles varies."""

from collections.abc import Mapping

from questions.question import Question, Style
from questions.slots import fill

OPEN_TEXT = "Make this kernel faster."


def has_phrasing(question: Question, style: Style) -> bool:
    """Whether the question can be put in that style; only a prescription may be missing."""
    return style is not Style.PRESCRIPTION or question.prescription is not None


def phrase(question: Question, style: Style, slots: Mapping[str, str]) -> str:
    """What the model is shown of a question: its text in a style, with the slots filled; "" for BARE.

    OPEN is the same sentence for every question. A prescription that is missing has no stand-in, for another style in
    its place would falsify a comparison: draw under that style only what `has_phrasing`. Raises ValueError for one,
    and for a slot without a value.
    """
    if style is Style.BARE:
        return ""
    if style is Style.OPEN:
        return OPEN_TEXT
    return fill(_template(question, style), slots)


def _template(question: Question, style: Style) -> str:
    if style is Style.IMPERATIVE:
        return question.imperative
    if style is Style.INFORMATION:
        return question.information
    if style is Style.QUESTION:
        return question.text
    if question.prescription is None:
        raise ValueError(f"question {question.id} has no prescription; draw one that has, or ask in another style")
    return question.prescription
