"""The page says what the account says, lets nothing in, and stays small."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import HOSTILE, SHOWN, hostile
from pages import inline_hash, parsed, rows_of
from small_records import timing
from small_runs import write_run

from evo.question_records import QuestionRow
from evo.report.account import Account, Change, Detail, Measured, Milestone, Step
from evo.report.diff import Kind, Piece
from evo.report.page import live_page, overview_page, report_page, trouble_page
from evo.report.reading import read_account
from evo.report.thinning import MOST_AUDITS, MOST_COLUMNS, MOST_DETAILED, MOST_QUESTIONS, MOST_SOURCE, Room
from evo.run_list import RunRow, RunState
from fitness.audit_record import Audit, AuditCheck, Finding
from population.records import Birth, QuestionRecord
from population.run_folder import RunFolder
from questions.credit import QuestionStatistics


@pytest.fixture(scope="module")
def account(bred: RunFolder) -> Account:
    return read_account(bred, now=0.0)


@pytest.fixture(scope="module")
def html(account: Account) -> str:
    return report_page(account).html


def test_the_outcome_stands_at_the_top(account: Account, html: str) -> None:
    best = account.best
    assert best is not None
    tiles = dict(zip((e.text for e in parsed(html).all("dt")), (e.text for e in parsed(html).all("dd")), strict=True))
    assert tiles["best, over fa3"] == f"{best.geomean:.4f} ×"
    assert tiles["its audit"] == "not run"
    assert tiles["evaluations"] == "60"
    assert tiles["passed"] == str(account.statuses["PASSED"])
    assert tiles["steps from the seed"] == str(len(account.line) - 1)


def test_tables_hold_the_accounts_figures(account: Account, html: str) -> None:
    outcomes = rows_of(html, "What became of the questions and kernels")[1:]
    assert outcomes == [[status, str(count)] for status, count in account.statuses.items()]
    spend = dict(rows_of(html, "All that the archive says was spent")[1:])
    assert spend == {"prompt tokens": "708,000", "completion tokens": "177,000", "cost usd": "2.9500"}
    heat = rows_of(html, "Speedup over fa3")
    assert heat[0] == ["scenario", *(str(each.place) for each in account.milestones)]
    for place, (name, *cells) in enumerate(heat[1:]):
        assert name == account.milestones[0].timings[place].scenario
        assert cells == [f"{each.timings[place].speedup:.3f}" for each in account.milestones]
    roof = rows_of(html, "Share of what the device")
    assert roof[1][1:] == [f"{each.timings[0].roof_share:.0%}" for each in account.milestones]


def test_every_audit_is_told_with_its_verdict_and_its_checks(account: Account, html: str) -> None:
    right = AuditCheck(name="new inputs", finding=Finding.PASSED, detail="1.21 and 1.20 ×")
    wrong = AuditCheck(name="full182", finding=Finding.FAILED, detail="wrong on 2 of 182")
    left_out = AuditCheck(name="memcheck", finding=Finding.SKIPPED, detail="no GPU")
    audits = {
        "k1": Audit(why=("far ahead", "above the roof"), checks=(right, left_out)),
        "k2": Audit(why=("the best of its run",), checks=(right, wrong)),
        "k3": Audit(why=("far ahead",), checks=(left_out,)),
    }
    rows = rows_of(report_page(replace(account, audits=audits)).html, "Kernels that were looked at again")
    assert [row[:3] for row in rows[1:]] == [
        ["k1", "passed in part", "far ahead; above the roof"],
        ["k2", "failed", "the best of its run"],
        ["k3", "not run", "far ahead"],
    ]
    assert rows[1][3] == "memcheck skipped: no GPU; new inputs passed: 1.21 and 1.20 ×"
    assert rows[2][3] == "full182 failed: wrong on 2 of 182; new inputs passed: 1.21 and 1.20 ×"
    assert 'id="audits"' not in html


def test_the_questions_table_holds_every_question(account: Account, html: str) -> None:
    rows = rows_of(html, "What each question brought")[1:]
    assert [[int(cell) for cell in row[3:8]] for row in rows] == [
        [
            row.statistics.asked, row.statistics.answered, row.statistics.compiled, row.statistics.right,
            row.statistics.gained,
        ]
        for row in account.questions
    ]  # fmt: skip
    means = [row.statistics.mean_gain for row in account.questions]
    assert [row[8] for row in rows] == ["–" if mean is None else f"{mean:.3f}" for mean in means]


def test_questions_of_a_generation_that_is_not_complete_are_told_below_the_table(tmp_path: Path, html: str) -> None:
    account = read_account(write_run(tmp_path, "cut", [0.5, 0.8], asked_only=2), now=0.0)
    assert [(row.statistics.asked, row.unfinished) for row in account.questions] == [(1, 0), (0, 1), (0, 1)]
    said = "Not counted: 2 asked in a generation that is not complete."
    assert said in " ".join(report_page(account).html.split())
    assert "Not counted" not in html


def test_every_step_of_the_line_is_an_article_with_its_way_on(account: Account, html: str) -> None:
    page = parsed(html)
    names = [step.kernel for step in account.line]
    articles = [e.attributes["id"] for e in page.all("article")]
    assert articles == [f"k-{name}" for name in [*names, *(step.kernel for step in account.beside)]]
    assert [e.attributes["href"] for e in page.all("a", rel="prev")] == [f"#k-{name}" for name in names[1:]]
    assert [e.attributes["href"] for e in page.all("a", rel="next")] == [f"#k-{name}" for name in names[:-1]]
    quotes = [e.text for e in page.all("blockquote")]
    assert quotes[: len(names) - 1] == [step.question.text for step in account.line if step.question]


def test_a_reader_without_eyes_or_mouse_finds_everything(html: str) -> None:
    page = parsed(html)
    assert page.all("a", class_="skip")[0].attributes["href"] == "#main"
    assert [e.tag for e in page.elements if re.fullmatch(r"h[1-6]", e.tag)][:2] == ["h1", "h2"]
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(e.attributes.get("scope") in ("col", "row") for e in page.all("th"))
    assert all(e.attributes.get("aria-label") for e in page.all("svg"))
    assert all(e.attributes.get("aria-label") for e in page.elements if e.attributes.get("role") == "region")
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    links = [str(e.attributes["href"]) for e in page.all("a")]
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(map(str, ids))
    assert html.startswith('<!doctype html>\n<html lang="en">')


def test_the_points_of_the_pictures_are_links_with_words(account: Account, html: str) -> None:
    points = [e for e in parsed(html).all("a") if str(e.attributes.get("aria-label", "")).startswith("evaluation ")]
    first = account.milestones[0]
    assert points[0].attributes == {
        "href": f"#k-{first.kernel}",
        "aria-label": f"evaluation {first.place}: {first.geomean:.4f} ×, {first.kernel}",
    }


def test_the_policy_lets_in_this_style_and_this_script_alone(html: str, account: Account) -> None:
    page = report_page(account)
    [meta] = [e for e in parsed(html).all("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert meta.attributes["content"] == page.policy
    directives = dict(part.split(" ", 1) for part in page.policy.split("; "))
    assert directives == {
        "default-src": "'none'",
        "style-src": inline_hash(html, "style"),
        "script-src": inline_hash(html, "script"),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    live = dict(part.split(" ", 1) for part in live_page(account, "bred", several=False).policy.split("; "))
    assert live == {**directives, "connect-src": "'self'"}


def test_nothing_comes_from_elsewhere_and_nothing_is_styled_inline(html: str) -> None:
    page = parsed(html)
    for element in page.elements:
        assert not {"style", "src", "srcset", "onclick", "onload", "onerror"} & set(element.attributes)
        assert str(element.attributes.get("href", "#")).startswith(("#", "data:,", "/"))
    assert "http://" not in html
    assert "https://" not in html


def test_whatever_a_run_holds_is_text(account: Account) -> None:
    page = report_page(hostile(account))
    found = parsed(page.html)
    assert (len(found.all("script")), found.all("img")) == (1, [])
    assert inline_hash(page.html, "script") in page.policy
    assert all(not name.startswith("on") for element in found.elements for name in element.attributes)
    assert found.all("h1")[0].text == SHOWN
    assert {e.text for e in found.all("blockquote")} >= {SHOWN}
    assert found.all("ins")[0].text == SHOWN
    assert found.all("pre")[-1].text == SHOWN
    assert "49" not in found.all("h1")[0].text


def test_hostile_names_and_troubles_are_text_on_the_other_pages(account: Account) -> None:
    pages = [
        overview_page({"/run/1": hostile(account)}, {"/run/2": HOSTILE}, {"/run/1": HOSTILE, "/run/2": HOSTILE}),
        trouble_page(HOSTILE, HOSTILE, several=True),
        live_page(hostile(account), HOSTILE, several=True),
    ]
    for page in pages:
        assert (len(parsed(page.html).all("script")), parsed(page.html).all("img")) == (1, [])
        assert page.html.encode("utf-8").count("\ufffd".encode()) >= 9
        assert inline_hash(page.html, "script") in page.policy


def test_lines_and_tabs_stay_as_they_are(account: Account) -> None:
    source = "int a;\r\n\tint b;\n"
    assert parsed(report_page(replace(account, champion_source=source)).html).all("pre")[-1].text == source


def test_runs_without_figures_have_pages(tmp_path: Path) -> None:
    nothing = report_page(read_account(write_run(tmp_path, "nothing", []), now=0.0)).html
    assert "Nothing was measured yet." in nothing
    assert "No kernel passed yet, so there is no champion." in nothing
    failed = report_page(read_account(write_run(tmp_path, "failed", [0.0, 0.0]), now=0.0)).html
    assert rows_of(failed, "What became")[1:] == [["INCORRECT", "2"]]


def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    made = write_run(tmp_path, "a", [0.5, 0.75]), write_run(tmp_path, "b", [0.5, 0.0, 1.0], usd=1.0)
    accounts = {f"/run/{place}": read_account(run, now=0.0) for place, run in enumerate(made, start=1)}
    names = {"/run/1": "a", "/run/2": "b", "/run/3": "gone"}
    html = overview_page(accounts, {"/run/3": "no such run"}, names).html
    rows = rows_of(html, "The runs")[1:]
    assert [row[0] for row in rows] == ["a", "b"]
    assert [row[2:6] for row in rows] == [["0.7500", "1.50", "2", "2"], ["1.0000", "2.00", "3", "2"]]
    assert rows[1][7] == "2.00"
    assert [e.text for e in parsed(html).all("p", class_="trouble")] == ["gone: no such run"]


def test_a_page_of_5000_individuals_is_below_3_mb() -> None:
    """The worst that the rule lets through: all room used, and text that grows when it is escaped."""
    account = large(5000)
    assert len(account.told) == 34  # as many as the room for details allows
    assert len(report_page(account).html.encode()) < 3_000_000


def large(individuals: int) -> Account:
    names = [f"k{n:012x}" for n in range(individuals)]
    room, text = Room(), "<&>'\"" * 400
    steps = [_large_step(n, names, room, text) for n in reversed(range(0, individuals, 8))]
    kinds = ("PASSED", "PASSED", "PASSED", "INCORRECT", "COMPILE_ERROR", "TIMEOUT")
    measured = tuple(
        Measured(
            place=n + 1, kernel=name, birth=n - 1, status=kinds[n % 6],
            geomean=None if n % 6 > 2 else 0.5 + n * 1e-4 * (n * 7919 % 1013) / 1013,
        )
        for n, name in enumerate(names)
    )  # fmt: skip
    births = tuple(
        Birth(id=name, source_sha256="", birth=n - 1, generation=n // 8, operator="mutate",
              parent_ids=(names[max(0, n - 8)],) if n else (), question_id=None)
        for n, name in enumerate(names)
    )  # fmt: skip
    return Account(
        row=RunRow(name="large", state=RunState.RUNNING, note=""), measured=measured, births=births,
        milestones=tuple(_large_milestone(n, names) for n in range(MOST_COLUMNS)), line=tuple(steps), beside=(),
        questions=tuple(_large_question(n, text) for n in range(MOST_QUESTIONS)), childless={}, spend={},
        environments=(), settings={}, champion_source="<" * MOST_SOURCE,
        audits={f"k{n}": _large_audit(text) for n in range(MOST_AUDITS)}, best_audit=_large_audit(text),
    )  # fmt: skip


def _large_audit(text: str) -> Audit:
    checks = tuple(AuditCheck(name=text, finding=Finding.PASSED, detail=text) for _ in range(8))
    return Audit(why=(text,), checks=checks)


def _large_step(n: int, names: list[str], room: Room, text: str) -> Step:
    piece = Piece(kind=Kind.ADDED, text="<int i = 0; i && i < n;>\n" * 100)
    detail = Detail(
        word=text, changes=tuple(Change(timing=timing(f"b1 h16 s{k} d128 causal bf16", 1.0), parent_speedup=1.0)
                                 for k in range(26)),
        noise=0.01, diff=None, diff_characters=2500,
    ) if n // 8 < MOST_DETAILED and room.take_table(26, [text, text]) else None  # fmt: skip
    if detail and room.take_texts([piece.text]):
        detail = replace(detail, diff=(piece,))
    question = QuestionRecord(number=n, question_id="q", moment="any", layer="memory", style="question",
                              text=text, origin="bank")  # fmt: skip
    return Step(kernel=names[n], evaluation=n + 1, generation=n, operator="mutate",
                parents=(names[n - 8],) if n else (), question=question, geomean=1.0, gain=1.01,
                detail=detail)  # fmt: skip


def _large_milestone(n: int, names: list[str]) -> Milestone:
    timings = tuple(timing(f"b1 h16 s{k} d128 causal bf16", 1.1) for k in range(26))
    return Milestone(place=n + 1, kernel=names[n * 8], geomean=1.0 + n, timings=timings)


def _large_question(n: int, text: str) -> QuestionRow:
    figures = QuestionStatistics(
        question_id=f"q{n}", asked=1, answered=1, compiled=1, right=1, gained=1, mean_gain=1.0, mean_gain_low=0.9,
        mean_gain_high=1.1,
    )  # fmt: skip
    return QuestionRow(text=text, layer="memory", moments=("any",), statistics=figures)
