"""Whether a bank's questions are well written: each rule that a machine can check, as findings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from questions.bank import Bank
from questions.entry import PHRASINGS
from questions.question import Layer, Moment, Question
from questions.slots import slots_in, without_slots

MAX_CHARACTERS = 240
MAX_SENTENCES = 2
SAME_MEANING = 0.5  # of the words of two texts in common, from which they ask the same

_VERBS = """
    add align allocate alternate apply assign avoid batch cache change check choose combine compare compute consider
    convert copy count cut declare decrease defer delete determine divide double drop eliminate enable ensure explain
    express feed find fix fold fuse give guard halve hand hoist hold identify implement improve increase inline
    interleave investigate issue join keep launch let limit load look lower make mask measure merge minimise minimize
    move optimise optimize order overlap pack pad pair parallelise parallelize pass peel place prefetch prove put raise
    read recompute reduce release remove reorder replace report request rescale reserve restrict rewrite run see
    separate set shift shorten show shrink skip sort speed split stage start stop store sum swap swizzle take tell test
    think tile treat try tune turn unroll use vectorise vectorize verify widen write
"""
_STOP_WORDS = """
    a about all an and any are as at be been before but by can could did do does each else every for from had has have
    how if in into is it its much many more most no not now of on one only or other out over own per same share so
    some than that the their them then there these they this those through to under up was what when where whether
    which while who why will with would you your kernel still even ever just at between after last first
"""
_BASE_VERBS = frozenset(_VERBS.split())
_EMPTY_WORDS = frozenset(_STOP_WORDS.split())
_CODE = re.compile(r"[`{};]|::|//|->|\w\(")
_SENTENCE_END = re.compile(r"[.?!](?=\s|$)")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One breach of one rule; `question_ids` is empty where the bank as a whole is meant."""

    rule: str
    question_ids: tuple[str, ...]
    message: str


def lint(bank: Bank) -> tuple[Finding, ...]:
    """Every finding, question by question, then between questions, then about the bank as a whole."""
    single = [finding for question in bank for rule in _RULES for finding in rule(question)]
    return (*single, *_same_meaning(bank), *_coverage(bank))


def _finding(rule: str, question: Question, message: str) -> Finding:
    return Finding(rule=rule, question_ids=(question.id,), message=f"{question.id}: {message}")


def _asks(question: Question) -> Iterator[Finding]:
    if not question.text.endswith("?"):
        yield _finding("question-mark", question, f"ends in {question.text[-1:]!r}; expected a question mark")
    sentences = len(_SENTENCE_END.findall(without_slots(question.text)))
    if sentences > MAX_SENTENCES:
        yield _finding("sentences", question, f"{sentences} sentences; expected one or two")
    if len(question.text) >= MAX_CHARACTERS:
        yield _finding("length", question, f"{len(question.text)} characters; expected under {MAX_CHARACTERS}")


def _orders_nothing(question: Question) -> Iterator[Finding]:
    for sentence in re.split(r"(?<=[.?!:])\s+", question.text.lower()):
        words = _WORD.findall(sentence)
        if words and words[0] in _BASE_VERBS:
            yield _finding("imperative", question, f"a sentence starts with {words[0]!r}; expected no order")
    if re.search(r"\bplease\b|\byou (?:should|must|need to|have to)\b", question.text.lower()):
        yield _finding("imperative", question, "it tells what to do; expected no order")


def _holds_no_code(question: Question) -> Iterator[Finding]:
    for key in PHRASINGS:
        found = _CODE.search(without_slots(getattr(question, key) or ""))
        if found:
            yield _finding("code", question, f"{key} holds {found[0]!r}; expected words alone, and slots")


def _can_be_tested(question: Question) -> Iterator[Finding]:
    for key in ("hypothesis", "measurement"):
        if not getattr(question, key).strip():
            yield _finding(key, question, f"no {key}; expected a few words")


def _phrasings_differ(question: Question) -> Iterator[Finding]:
    given = {key: text for key in PHRASINGS if (text := getattr(question, key)) is not None}
    for one, other in combinations(given, 2):
        if _words_of(given[one]) == _words_of(given[other]):
            yield _finding("phrasings", question, f"{one} and {other} are the same; expected each in its own style")
    for key in given.keys() - {"text"}:
        if "?" in given[key]:
            yield _finding("phrasings", question, f"{key} holds a question mark; expected it in `text` alone")


def _phrasings_are_in_style(question: Question) -> Iterator[Finding]:
    for key in ("imperative", "prescription"):
        text = getattr(question, key)
        if text is not None and not _starts_with_verb(text):
            yield _finding("phrasings", question, f"{key} starts with {text.split()[0]!r}; expected a verb that orders")
    if _starts_with_verb(question.information):
        yield _finding("phrasings", question, "information starts with an order; expected a plain fact")


def _phrasings_share_slots(question: Question) -> Iterator[Finding]:
    slots = slots_in(question.text)
    for key in ("imperative", "information"):
        if slots_in(getattr(question, key)) != slots:
            yield _finding("slots", question, f"{key} has other slots than text; expected the same content")
    if not slots_in(question.prescription or "") <= slots:
        yield _finding("slots", question, "prescription has slots that text lacks; expected none beyond them")


def _starts_with_verb(text: str) -> bool:
    words = _WORD.findall(text.lower())
    return bool(words) and words[0] in _BASE_VERBS


_RULES: tuple[Callable[[Question], Iterator[Finding]], ...] = (
    _asks,
    _orders_nothing,
    _holds_no_code,
    _can_be_tested,
    _phrasings_differ,
    _phrasings_are_in_style,
    _phrasings_share_slots,
)


def _same_meaning(bank: Bank) -> Iterator[Finding]:
    words = {question.id: _meaning(question.text) for question in bank}
    for one, other in combinations(bank, 2):
        common = len(words[one.id] & words[other.id]) / max(1, len(words[one.id] | words[other.id]))
        if common >= SAME_MEANING or _meaning(one.hypothesis) == _meaning(other.hypothesis):
            yield Finding(
                rule="same-meaning",
                question_ids=(one.id, other.id),
                message=f"{one.id} and {other.id}: {common:.0%} of their words in common, or one hypothesis for both; "
                "expected each question to ask something else",
            )


def _coverage(bank: Bank) -> Iterator[Finding]:
    covered = {question.layer for question in bank} | {moment for question in bank for moment in question.moments}
    for kind, names in (("layer", tuple(Layer)), ("moment", tuple(Moment))):
        for name in names:
            if name not in covered:
                yield Finding(rule="coverage", question_ids=(), message=f"no question for the {kind} {name}")


def _meaning(text: str) -> frozenset[str]:
    """The words that carry it, without slots, stop words and endings."""
    words = _words_of(without_slots(text))
    return frozenset(re.sub(r"(?:ies|es|s|ing|ed)$", "", word) for word in words if word not in _EMPTY_WORDS)


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())
