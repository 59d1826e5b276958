"""The clock inside against the clock outside, in figures alone."""

import numpy as np
import pytest

from fitness.clocked import NEVER, ClockedCall, ClockedScenario, Span, judge_clocks, read_span

PEAK = 2000.0  # MHz: 2000 cycles are a microsecond


def clocked(*calls, name="a", launches=1, peak_mhz=PEAK):
    """`calls` are (milliseconds outside, milliseconds by the timer, cycles)."""
    made = tuple(
        ClockedCall(span=Span(cycles=cycles, nanoseconds=round(span * 1e6)), outside_ms=outside, sm_mhz=1500.0)
        for outside, span, cycles in calls
    )
    return ClockedScenario(scenario=name, launches=launches, peak_mhz=peak_mhz, calls=made)


def judged(*scenarios, plain_ms=1.0):
    return judge_clocks(scenarios, {each.scenario: plain_ms for each in scenarios})


def empty(sms=4):
    return np.array([[NEVER, 0, NEVER, 0]] * sms, dtype=np.int64)


def test_a_span_is_the_longest_of_an_sm_in_cycles_and_of_all_in_nanoseconds():
    stamps = empty()
    stamps[0] = (1000, 1500, 10**18 + 32, 10**18 + 500)
    stamps[3] = (7, 407, 10**18, 10**18 + 480)  # another SM counts from elsewhere
    assert read_span(stamps) == Span(cycles=500, nanoseconds=500)


def test_without_stamps_there_is_no_span():
    assert read_span(empty()) is None
    half = empty()
    half[1] = (5, 0, 5, 0)  # it began and never ended
    assert read_span(half) is None


def test_an_honest_kernel_is_at_work_for_less_than_the_events_say():
    verdict = judged(clocked((1.0, 0.99, 1_400_000)))
    assert (verdict.unseen, verdict.astray, len(verdict.compared)) == ("", "", 1)
    assert verdict.compared[0].inside_ms == pytest.approx(0.99)


@pytest.mark.parametrize(("span", "fails"), [(1.052, False), (1.054, True)])
def test_work_that_the_events_do_not_see_counts_from_a_twentieth_and_three_microseconds_on(span, fails):
    verdict = judged(clocked((1.0, span, 0)))
    assert bool(verdict.unseen) is fails
    if fails:
        assert verdict.unseen == (
            "a: 0 cycles on one SM at 1500 MHz right after, 1.0540 ms by the timer inside, 1.0000 ms outside"
        )


@pytest.mark.parametrize(("cycles", "fails"), [(2_104_000, False), (2_108_000, True)])
def test_cycles_count_at_the_rate_at_which_they_take_least_time(cycles, fails):
    """At 2000 MHz; the rate that was read right after would make 1.4 ms of them, and the kernel may have run faster."""
    assert bool(judged(clocked((1.0, 0.9, cycles))).unseen) is fails


@pytest.mark.parametrize(("launches", "peak_mhz"), [(2, PEAK), (1, 0.0)])
def test_of_several_kernels_or_at_an_unknown_rate_the_timer_alone_counts(launches, peak_mhz):
    assert judged(clocked((1.0, 0.9, 10**9), launches=launches, peak_mhz=peak_mhz)).unseen == ""


def test_one_call_of_three_is_an_accident_and_two_are_not():
    honest, cheat = (1.0, 0.9, 0), (1.0, 1.2, 0)
    assert judged(clocked(honest, cheat, honest)).unseen == ""
    assert judged(clocked(cheat, cheat, honest)).unseen != ""


@pytest.mark.parametrize("plain_ms", [0.66, 1.51])
def test_where_stamps_make_another_kernel_of_it_nothing_is_said(plain_ms):
    verdict = judged(clocked((1.0, 5.0, 0)), plain_ms=plain_ms)
    assert (verdict.unseen, verdict.compared) == ("", ())
    assert verdict.astray == f"a takes 1.0000 ms with them and {plain_ms:.4f} without"


@pytest.mark.parametrize("plain_ms", [0.67, 1.49])
def test_a_kernel_that_is_somewhat_slower_or_faster_with_stamps_is_the_same(plain_ms):
    assert judged(clocked((1.0, 5.0, 0)), plain_ms=plain_ms).unseen != ""


def test_the_scenario_of_which_most_is_unseen_is_told():
    verdict = judged(clocked((1.0, 1.2, 0)), clocked((1.0, 1.9, 0), name="b"), clocked((1.0, 0.9, 0), name="c"))
    assert verdict.unseen.startswith("b: ")
    assert len(verdict.compared) == 3
