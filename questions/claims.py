"""Whether a reply declares a limit, or that the work is done: by its own field for that, or in so many words."""

import re
from collections.abc import Sequence

from questions.question import Moment

_FIELD = {
    "limit": Moment.LIMIT_DECLARED,
    "done": Moment.DONE_DECLARED,
    "none": None,
    "no": None,
}

_WHOLE = r"(?:this|the|our|my) (?:\w+ )?(?:kernel|version|design|implementation|code)|it|this|we"
_END = r"(?=\s*(?:$|[,(]|now\b|here\b|and\b|on this\b|for this\b|with this\b|in this\b|of (?:the|this)\b))"
_KIND = r"(?:(?:hard|practical|physical|hardware|theoretical|fundamental|absolute|real|true|device)(?:'s)? )?"
_CEILING = rf"{_KIND}(?:limit|roof|roofline|ceiling|optimum|speed of light)"
_SURELY = r"(?:now|simply|really|indeed|clearly|probably|likely|essentially|thus|therefore)"
_MORE = r"(?:further|more|other|additional|significant|meaningful|measurable|real) "
_GAIN = r"(?:gain|speedup|speed-up|improvement|win|optimi[sz]ation|headroom)s?"

_LIMIT = (
    rf"\bthis (?:is|must be|marks) (?:{_SURELY} )?(?:the|its) {_CEILING}{_END}",
    rf"\b(?:{_WHOLE}) (?:is|are|sits?|runs?|stands?) (?:now |already |right )*at (?:the|its) {_CEILING}{_END}",
    r"\bat (?:the|its) (?:hardware |memory |compute )?roof(?:line)?" + _END,
    rf"\b(?:reached|hit) (?:the|its) {_CEILING}{_END}",
    rf"\bno {_MORE}{_GAIN}(?: (?:is |are |seems? )?(?:possible|left|available|to be had))?{_END}",
    rf"\bno (?:room|headroom|potential)(?: left)? for (?:{_MORE})?(?:{_GAIN})",
    r"\bnothing (?:more |else |is |seems )*left to (?:gain|win|improve|optimi[sz]e|squeeze|tune|try|speed up)\b",
    r"\bnothing (?:more |else |is )*(?:left)(?: to do)?$",
    rf"\b(?:{_WHOLE}) (?:cannot|can't|can not) (?:\w+ )?(?:be|get|go) (?:made )?(?:any )?"
    r"(?:faster|improved|optimi[sz]ed|sped up|quicker)",
    rf"\b(?:{_WHOLE}) (?:is|are) (?:now |already |essentially |provably )*optimal{_END}",
    r"\bas fast as (?:it|this|the hardware|this hardware|this device) (?:can|will|allows|permits|gets|could)\b",
    r"\b(?:at|reached|into) (?:the point of )?diminishing returns\b",
)
_DONE = (
    r"^(?:all |we are |we're |i am |i'm |and )?(?:done|finished)$",
    r"\b(?:i am|i'm|we are|we're) (?:now |all )?(?:done|finished)\b(?! with)",
    r"\b(?:the|this|my) (?:task|work|job|optimi[sz]ation|kernel) is (?:now |already |thus )?"
    r"(?:done|complete|completed|finished)$",
    r"\bthis is (?:the|my) final (?:version|kernel|answer|form)\b",
    r"\b(?:i|we)(?:'ll| will| shall| would)? (?:stop|rest) here\b|\bstopping here\b",
    r"\bno (?:further|more|other) (?:changes?|edits?|work) (?:is |are )?(?:needed|necessary|required|planned)" + _END,
    r"\bnothing (?:more|else|further) to do$",
)
# What turns a sentence into a doubt, a condition or a report about someone else's words, when it stands before them.
_GUARD = re.compile(
    r"\b(?:not|never|no longer|hardly|scarcely|far from|nowhere near|neither|nor|doubt|if|unless|until|once|when|"
    r"whether|while|before|after(?! (?:this|these|that|all|both)\b)|would|could|might|may|suppose|assume|were|"
    r"seemed|claimed?|unlikely|whose|which)\b|n't\b"
)
_NOT_PROSE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|^\s*>.*?$", re.DOTALL | re.MULTILINE
)
_CLAUSE = re.compile(r"(?<=[.!?])\s+|;|\n\s*\n|\n\s*(?=[-*#\d])|,? but |,? yet |—")


def declared(reply: str, claim: str = "") -> Moment | None:
    """LIMIT_DECLARED, DONE_DECLARED, or None; a limit outranks an end, for the end follows from it.

    `claim` is the reply's own field for it: "limit", "done" and "none" settle the matter, "" leaves it to the wording
    of the reply, and any other text is read as wording too. Code, quotations and questions in the reply do not count,
    nor do words under a condition or a negation.
    """
    word = claim.strip().strip(".!").lower()
    if word in _FIELD:
        return _FIELD[word]
    clauses = [*_clauses(claim), *_clauses(reply)]
    if _says(clauses, _LIMIT):
        return Moment.LIMIT_DECLARED
    return Moment.DONE_DECLARED if _says(clauses, _DONE) else None


def _clauses(text: str) -> list[str]:
    prose = _NOT_PROSE.sub(" ", text.replace("’", "'")).lower()
    clauses = [" ".join(clause.split()).strip("-*#_ ") for clause in _CLAUSE.split(prose) if clause]
    return [clause.rstrip(".!:* ") for clause in clauses if clause and not clause.endswith("?")]


def _says(clauses: Sequence[str], patterns: Sequence[str]) -> bool:
    found = (re.search(pattern, clause) for clause in clauses for pattern in patterns)
    return any(match and not _GUARD.search(match.string[: match.start()]) for match in found)
