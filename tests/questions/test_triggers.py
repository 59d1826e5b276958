import math

import pytest

from questions.history import STATUSES, Attempt, History
from questions.question import Moment
from questions.triggers import Thresholds, attempts_without_gain, read_moment

USUAL = Thresholds()


def passed(geomean: float, parent: float | None = 1.0, **changes: object) -> Attempt:
    return Attempt(status="PASSED", geomean=geomean, parent_geomean=parent, **changes)


def failed(status: str, **changes: object) -> Attempt:
    return Attempt(status=status, parent_geomean=1.0, **changes)


def moment(*attempts: Attempt, thresholds: Thresholds = USUAL, **changes: object) -> Moment:
    changes = {"start_geomean": 1.0, **changes}
    return read_moment(History(attempts=attempts, **changes), thresholds).moment


def test_nothing_tried_yet():
    assert read_moment(History(), USUAL).moment is Moment.ANY
    assert read_moment(History(), USUAL).reason == "nothing tried yet"


def test_a_plain_gain_and_a_draw():
    assert moment(passed(1.05)) is Moment.ANY
    assert moment(passed(1.001)) is Moment.ANY


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("INVALID", Moment.COMPILE_FAILURE),
        ("UNSUPPORTED", Moment.COMPILE_FAILURE),
        ("COMPILE_ERROR", Moment.COMPILE_FAILURE),
        ("RUNTIME_ERROR", Moment.INCORRECT),
        ("TIMEOUT", Moment.INCORRECT),
        ("INCORRECT", Moment.INCORRECT),
        ("STOPPED_EARLY", Moment.SLOWER),
        ("NO_CANDIDATE", Moment.ANY),
    ],
)
def test_each_failure(status, expected):
    assert moment(failed(status)) is expected


def test_every_status_has_its_moment():
    for status in STATUSES:
        attempt = passed(1.0) if status == "PASSED" else failed(status)
        assert moment(attempt) in Moment


def test_slower_beyond_the_noise():
    assert moment(passed(0.98)) is Moment.SLOWER
    assert moment(passed(0.996)) is Moment.ANY
    assert moment(passed(0.98, noise=0.02)) is Moment.ANY  # the difference of two such numbers: 0.028
    assert moment(passed(0.97, noise=0.02)) is Moment.SLOWER
    assert moment(passed(0.9, parent=None)) is Moment.ANY


def test_a_big_win():
    assert moment(passed(1.25)) is Moment.BIG_WIN
    assert moment(passed(1.24)) is Moment.ANY
    assert moment(passed(2.0, parent=1.9)) is Moment.ANY
    assert moment(passed(1.1), thresholds=Thresholds(big_win=1.1)) is Moment.BIG_WIN


def test_a_declaration():
    assert moment(passed(1.01, claim="limit")) is Moment.LIMIT_DECLARED
    assert moment(passed(1.01, claim="done")) is Moment.DONE_DECLARED
    assert moment(passed(1.01, claim="")) is Moment.ANY
    assert moment(failed("NO_CANDIDATE", claim="limit")) is Moment.LIMIT_DECLARED


def test_only_the_last_reply_counts():
    assert moment(passed(1.01, claim="done"), passed(1.03)) is Moment.ANY


def test_a_stall():
    flat = [passed(1.0)] * 3
    assert moment(*flat) is Moment.ANY
    assert moment(*flat, passed(1.001)) is Moment.STALL
    assert moment(*flat, passed(0.9)) is Moment.STALL
    assert moment(*flat, failed("NO_CANDIDATE")) is Moment.STALL
    assert moment(*flat, passed(1.02)) is Moment.ANY
    assert moment(*flat, thresholds=Thresholds(patience=3)) is Moment.STALL


def test_attempts_without_gain():
    def count(*attempts: Attempt, start: float | None = 1.0) -> int:
        return attempts_without_gain(History(attempts=attempts, start_geomean=start), USUAL)

    assert count() == 0
    assert count(passed(1.02), passed(1.01), failed("INCORRECT")) == 2
    assert count(passed(1.02), passed(1.04)) == 0
    assert count(passed(0.5), start=None) == 0  # the first that passes at all
    assert count(passed(1.02, noise=0.02)) == 1
    assert count(passed(1.03, noise=0.02)) == 0


def test_small_steps_add_up_to_a_gain():
    creep = [passed(1.004), passed(1.004 * 1.004), passed(1.004**3)]
    history = History(attempts=tuple(creep), start_geomean=1.0)
    assert attempts_without_gain(history, USUAL) == 1  # the second step stands 0.8 % above the start


def test_going_in_circles():
    lines = "\n".join(f"line {i};" for i in range(10))
    sources = (lines, "", lines)
    assert moment(passed(1.0), sources=sources) is Moment.STALL
    trigger = read_moment(History(attempts=(passed(1.0),), start_geomean=1.0, sources=sources), USUAL)
    assert trigger.reason == "100% of the lines last added were deleted before"
    assert moment(passed(1.0), sources=("a1\nb1", "", "a1\nb1")) is Moment.ANY  # too few lines to mean anything
    assert moment(passed(1.0), sources=(lines, "", lines, lines)) is Moment.ANY  # the last step added nothing


def test_two_parents_come_before_all_else():
    assert moment(passed(3.0, claim="limit"), parents=2) is Moment.CROSSOVER


def test_a_big_win_comes_before_a_declaration():
    assert moment(passed(3.0, claim="limit")) is Moment.BIG_WIN


def test_a_declaration_comes_before_a_failure_and_a_stall():
    assert moment(*[passed(1.0)] * 5, failed("INCORRECT", claim="done")) is Moment.DONE_DECLARED


def test_a_fresh_failure_comes_before_a_stall_and_an_old_one_behind():
    flat = [passed(1.0)] * 4
    assert moment(*flat, failed("INCORRECT")) is Moment.INCORRECT
    assert moment(*flat, failed("COMPILE_ERROR"), failed("INCORRECT")) is Moment.INCORRECT
    assert moment(*flat, *[failed("INCORRECT")] * 3) is Moment.STALL
    assert moment(*[failed("COMPILE_ERROR")] * 3) is Moment.COMPILE_FAILURE  # no stall yet: the failure still counts
    assert moment(*[failed("COMPILE_ERROR")] * 4, start_geomean=None) is Moment.STALL


def test_a_stall_comes_before_slower():
    assert moment(*[passed(0.9)] * 4) is Moment.STALL
    assert moment(*[passed(0.9)] * 3) is Moment.SLOWER


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "PASSED"},
        {"status": "INCORRECT", "geomean": 1.0},
        {"status": "passed", "geomean": 1.0},
        {"status": "PASSED", "geomean": math.nan},
        {"status": "PASSED", "geomean": 0.0},
        {"status": "PASSED", "geomean": 1.0, "parent_geomean": math.inf},
        {"status": "PASSED", "geomean": 1.0, "noise": math.nan},
        {"status": "PASSED", "geomean": 1.0, "noise": -0.1},
    ],
)
def test_an_attempt_that_contradicts_itself(fields):
    with pytest.raises(ValueError, match="attempt: "):
        Attempt(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"patience": 0},
        {"repairs": -1},
        {"min_change": -1.0},
        {"big_win": 1.0},
        {"big_win": math.nan},
        {"repeat_share": 0.0},
    ],
)
def test_thresholds_that_make_no_sense(fields):
    with pytest.raises(ValueError, match="expected"):
        Thresholds(**fields)
