"""An account of a run whose every text was written to break the page that shows it."""

from dataclasses import replace

from small_records import timing

from evo.report.account import Account, Change, Detail
from evo.report.diff import Kind, Piece
from fitness.audit_record import Audit, AuditCheck, Finding
from population.records import QuestionRecord

_TAGS = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & <!-- ]]> {{ 7*7 }} $\\frac{$ \t"
_UNSEEN = ("\x7f", "\u202e", "\x00", "\x1b", "\ud800", "\udcff", "\u2066", "\u200f", "\x9b")

HOSTILE = _TAGS + " ".join(_UNSEEN)
SHOWN = _TAGS + " ".join("\ufffd" for _ in _UNSEEN)  # as a page has it


def hostile(account: Account) -> Account:
    """The account with every text that a run may hold replaced."""
    question = QuestionRecord(
        number=1, question_id=HOSTILE, moment=HOSTILE, layer=HOSTILE, style=HOSTILE, text=HOSTILE, origin=HOSTILE
    )
    detail = Detail(
        word=HOSTILE, changes=(Change(timing=timing(HOSTILE, 1.0), parent_speedup=1.0),), noise=0.0,
        diff=(Piece(kind=Kind.ADDED, text=HOSTILE),), diff_characters=1,
    )  # fmt: skip
    check = AuditCheck(name=HOSTILE, finding=Finding.FAILED, detail=HOSTILE)
    return replace(
        account,
        measured=tuple(replace(each, status=each.status if each.geomean else HOSTILE) for each in account.measured),
        row=replace(account.row, name=HOSTILE, note=HOSTILE),
        line=tuple(replace(step, question=question, detail=detail, operator=HOSTILE) for step in account.line),
        milestones=tuple(replace(each, timings=(timing(HOSTILE, 1.0),)) for each in account.milestones),
        questions=tuple(replace(row, text=HOSTILE, layer=HOSTILE, moments=(HOSTILE,)) for row in account.questions),
        childless={HOSTILE: 1},
        spend={HOSTILE: 1.0},
        environments=tuple(replace(each, device=HOSTILE, baseline=HOSTILE) for each in account.environments),
        settings={HOSTILE: HOSTILE, "list": [HOSTILE]},
        champion_source=HOSTILE,
        audits={HOSTILE: Audit(why=(HOSTILE,), checks=(check,))},
    )
