"""What of others' text may be shown, and that every fault of a candidate is told so."""

from fitness.compile_log import advisories
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.shown_text import shown_text


def test_lines_tabs_and_letters_of_any_language_stay():
    assert shown_text("größer\n\t数 \N{NO-BREAK SPACE}→ 😀") == "größer\n\t数 \N{NO-BREAK SPACE}→ 😀"


def test_what_steers_a_terminal_is_replaced():
    assert shown_text("\x1b[2Jx\x07\r\x9b1m\u202eend\u2028\ud800") == "?[2Jx??" + "?1m?end??"
    assert shown_text("a\u200fb\u200ec\u061cd") == "a?b?c?d"


def test_a_text_without_end_is_cut_and_says_so():
    assert shown_text("x" * 30, 10) == "xxxxxxxxxx … and 20 characters more"


def test_a_fault_shows_no_more_of_a_candidate_than_that():
    fault = CandidateFault(Status.INVALID, "it calls \x1b]0;you\x07" + "a" * 100_000)
    assert fault.reason.startswith("it calls ?]0;you?aaa")
    assert len(fault.reason) < 9000
    assert "\x1b" not in str(fault)


def test_nor_do_the_compilers_advisories():
    log = "".join(f"ptxas warning : \x1b[31m{number} {'x' * 1000}\n" for number in range(1000))
    found = advisories(log)
    assert len(found) == 60
    assert found[0].startswith("?[31m0 xxx")
    assert max(map(len, found)) < 600
