"""A question that a person puts to a running search, in their own words."""

import hashlib
import re

from questions.entry import TARGETS
from questions.question import Layer, Moment, Question
from questions.slots import SLOTS, slots_in

_WORDS_IN_ID = 6


def personal_question(text: str, *, layer: Layer) -> Question:
    """The question of that text, with an id made of its words, so that asking it again is asking the same.

    The person's words stand in every style: nobody else may rephrase them. Raises ValueError for text that UTF-8
    cannot hold, that does not end in a question mark, or has a slot that nothing fills.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("the question is not UTF-8 text") from error
    words = " ".join(text.split())
    if len(words) < 2 or not words.endswith("?"):
        raise ValueError(f"question {words!r}: expected one that ends in a question mark")
    unknown = slots_in(words) - SLOTS.keys()
    if unknown:
        raise ValueError(f"question {words!r}: unknown slots {sorted(unknown)}; expected some of {sorted(SLOTS)}")
    return Question(
        id=_identifier(words),
        text=words,
        layer=layer,
        moments=(Moment.ANY,),
        hypothesis="a person's own",
        measurement="the child beside its parent",
        targets=TARGETS,
        imperative=words,
        information=words,
        prescription=words,
        origin="person",
    )


def _identifier(words: str) -> str:
    slug = "-".join(re.findall(r"[a-z0-9]+", words.lower())[:_WORDS_IN_ID])
    digest = hashlib.sha256(words.encode()).hexdigest()[:6]
    return f"person-{slug}-{digest}" if slug else f"person-{digest}"
