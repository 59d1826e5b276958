"""The account of a run as one HTML file that needs nothing else and lets nothing else in.

All that a run holds goes through the templates' escaping: a model's words are text wherever they stand, and a mark
stands for each character of theirs that nobody would see. What runs on the page is what its policy names by hash, the
style sheet and the script that ship with it.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evo.audits import verdict
from evo.report.account import Account
from evo.report.heat import SHADES, against_baseline, against_roof, speedup_cell
from evo.report.pictures import SERIES, family_tree, side_by_side, way_to_the_best
from evo.report.thinning import MOST_IN_A_ROW, cut
from fitness.audit_record import Audit, Finding

_TEMPLATES = Path(__file__).parent / "templates"
_CHANGE_SPAN = 1.5  # the factor over the parent that the strongest shade stands for
_UNSEEN = re.compile(  # what steers a reader's eye or a terminal, NUL, and surrogates, which UTF-8 has no form for
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MARK = "\ufffd"
_MOST_SETTING = 120  # characters of a setting's value


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole HTML file, and the policy that it names for itself."""

    html: str
    policy: str


def report_page(account: Account) -> Page:
    """The page of one run, as it stood."""
    return _page("run.html", live=False, title=account.row.name, **_of_run(account))


def live_page(account: Account, name: str, *, several: bool) -> Page:
    """The same, renewing itself; of several runs each is called by its name among them."""
    return _page("run.html", live=True, title=name, several=several, **_of_run(account))


def overview_page(accounts: Mapping[str, Account], troubles: Mapping[str, str], names: Mapping[str, str]) -> Page:
    """Several runs side by side, all by address; `troubles` tells of those that cannot be read now."""
    return _page(
        "overview.html",
        live=True,
        title=f"{len(names)} runs",
        names=names,
        accounts=accounts,
        troubles=troubles,
        picture=side_by_side(accounts, "overview"),
        series={address: place % SERIES + 1 for place, address in enumerate(accounts)},
    )


def trouble_page(name: str, trouble: str, *, several: bool) -> Page:
    """A line about a run that cannot be read now, on a page that tries again."""
    return _page("trouble.html", live=True, title=name, trouble=trouble, several=several)


def _page(template: str, *, live: bool, **values: Any) -> Page:  # noqa: ANN401  # what a template asks for
    environment = _environment()
    style = environment.get_template("page.css").render(shades=SHADES).strip()
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8").strip()
    policy = _policy(style, script, live=live)
    html = environment.get_template(template).render(
        most_in_a_row=MOST_IN_A_ROW,
        style=Markup(style), script=Markup(script), policy=policy, live=live, **{"several": False, **values}  # noqa: S704
    )  # fmt: skip
    return Page(html=_UNSEEN.sub(_MARK, html), policy=policy)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = _figure
    environment.filters["change"] = lambda factor: speedup_cell(factor, _CHANGE_SPAN)
    environment.filters["svg"] = lambda picture: Markup(picture.svg)  # noqa: S704  # escaped where it was made
    environment.filters["setting"] = lambda value: cut(json.dumps(value, ensure_ascii=False), _MOST_SETTING)
    environment.filters["cut"] = cut
    environment.filters["verdict"] = verdict
    environment.filters["checks"] = _checks
    return environment


def _of_run(account: Account) -> dict[str, Any]:
    return {
        "account": account,
        "way": way_to_the_best(account, "way"),
        "tree": family_tree(account, "tree"),
        "baseline_map": against_baseline(account.milestones),
        "roof_map": against_roof(account.milestones),
        "settings": {key: account.settings[key] for key in sorted(account.settings) if key != "suite.scenarios"},
    }


def _checks(audit: Audit) -> str:
    """What each check of an audit found, failed ones first, then those that were skipped: what follows may be cut."""
    first = (Finding.FAILED, Finding.SKIPPED)
    ordered = sorted(audit.checks, key=lambda check: first.index(check.finding) if check.finding in first else 2)
    return "; ".join(f"{check.name} {check.finding}: {check.detail}" for check in ordered)


def _policy(style: str, script: str, *, live: bool) -> str:
    """Nothing but this very style sheet and script; a live page may also ask its own server again."""
    parts = [
        "default-src 'none'",
        f"style-src {_hash(style)}",
        f"script-src {_hash(script)}",
        "img-src data:",  # the empty icon, so that no browser asks for one
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, "connect-src 'self'"] if live else parts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _figure(value: float | None, form: str = ".4f") -> str:
    return "–" if value is None else format(value, form)
