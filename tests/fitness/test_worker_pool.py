"""Turns go to exactly one worker each, and once more where it dies; nothing waits for ever. Workers are fakes."""

import threading
from collections import Counter

import pytest

from fitness.faults import BaselineUnavailableError, DoubtfulFault, EnvironmentFault
from fitness.worker_pool import TurnDropped, TwoWorkersLost, WorkerPool

PATIENCE_S = 20.0  # before a test gives up on what never comes


class Hand:
    """A worker that does what it is told; `dead` ones do not start."""

    def __init__(self, name):
        self.name = name
        self.dead = False
        self.starts = 0
        self.released = threading.Event()
        self.closed = False

    def abort(self):
        self.released.set()

    def close(self):
        self.closed = True


def ready(hand):
    hand.starts += 1
    if hand.dead:
        raise EnvironmentFault(f"{hand.name} does not start")


def fails(hand):
    raise DoubtfulFault(f"{hand.name} failed")


def breaks(hand):
    """Fails, and its device stays broken."""
    hand.dead = True
    raise DoubtfulFault(f"{hand.name} broke")


@pytest.fixture
def hands():
    return [Hand("first"), Hand("second"), Hand("third")]


@pytest.fixture
def pool(hands):
    with WorkerPool(hands, ready) as made:
        yield made


def result(future):
    return future.result(PATIENCE_S)


def test_every_turn_is_taken_exactly_once(pool):
    taken, lock = Counter(), threading.Lock()

    def count(number):
        with lock:
            taken[number] += 1
        return number

    turns = [pool.submit(lambda _hand, number=number: count(number)) for number in range(200)]
    assert [result(turn) for turn in turns] == list(range(200))
    assert set(taken.values()) == {1}


def test_a_worker_does_one_thing_at_a_time_and_all_of_them_work(pool):
    at_work, busiest, lock = Counter(), Counter(), threading.Lock()
    all_here = threading.Barrier(3)

    def work(hand):
        with lock:
            at_work[hand.name] += 1
            busiest[hand.name] = max(busiest[hand.name], at_work[hand.name])
        all_here.wait(PATIENCE_S)  # passes only where three are at it at once
        with lock:
            at_work[hand.name] -= 1

    for turn in [pool.submit(work) for _ in range(9)]:
        result(turn)
    assert busiest == {"first": 1, "second": 1, "third": 1}


def test_turns_are_taken_in_order_but_for_the_first_and_the_last(hands):
    started, go = threading.Event(), threading.Event()
    seen = []
    with WorkerPool(hands[:1], ready) as pool:
        holding = pool.submit(lambda _hand: (started.set(), go.wait(PATIENCE_S)))
        assert started.wait(PATIENCE_S)
        how = [("c", {"last": True}), ("a", {}), ("b", {}), ("audit", {"first": True})]
        turns = [pool.submit(lambda _hand, name=name: seen.append(name), **order) for name, order in how]
        go.set()
        for turn in [holding, *turns]:
            result(turn)
    assert seen == ["audit", "a", "b", "c"]


def test_a_turn_whose_worker_fails_is_done_by_another_life_of_a_worker(pool):
    tries = []

    def fails_once(hand):
        tries.append(hand.name)
        return "done" if len(tries) > 1 else fails(hand)

    assert result(pool.submit(fails_once)) == "done"
    assert len(tries) == 2


def test_what_ends_two_workers_is_not_tried_on_a_third(pool, hands):
    tries = []

    def deadly(hand):
        tries.append(hand.name)
        fails(hand)

    with pytest.raises(TwoWorkersLost, match="failed"):
        result(pool.submit(deadly))
    assert len(tries) == 2
    assert result(pool.submit(lambda hand: "well")) == "well"  # both came back


def test_two_faults_that_nothing_it_ran_can_bring_about_are_told_as_they_are(pool):
    faults = [DoubtfulFault("the driver gave up"), EnvironmentFault("the disk is full")]

    def meets(_hand, left):
        raise left.pop()

    for order in (faults, faults[::-1]):
        left = [*order]
        with pytest.raises(EnvironmentFault) as fault:
            result(pool.submit(lambda hand, left=left: meets(hand, left)))
        assert fault.value is order[0]
        assert not isinstance(fault.value, TwoWorkersLost)


def test_a_worker_that_cannot_be_started_again_leaves_and_its_turn_goes_to_another(pool, hands):
    broken = []

    def breaks_the_first(hand):
        if not broken:
            broken.append(hand)
            breaks(hand)
        return hand.name

    name = result(pool.submit(breaks_the_first))
    assert name != broken[0].name
    left = {result(pool.submit(lambda hand: hand.name)) for _ in range(50)}
    assert broken[0].name not in left


def test_two_devices_that_stay_broken_are_no_verdict_on_what_ran_there(pool):
    with pytest.raises(EnvironmentFault, match="broke") as fault:
        result(pool.submit(breaks))
    assert not isinstance(fault.value, TwoWorkersLost)


def test_when_no_worker_is_left_every_turn_fails_and_the_next_tries_them_all_again(hands):
    with WorkerPool(hands[:1], ready) as pool:
        go = threading.Event()
        first = pool.submit(lambda hand: (go.wait(PATIENCE_S), breaks(hand)))
        second = pool.submit(lambda hand: hand.name)
        go.set()
        for turn in (first, second):
            with pytest.raises(EnvironmentFault, match=r"does not start|broke"):
                result(turn)
        hands[0].dead = False  # somebody mended it
        assert result(pool.submit(lambda hand: hand.name)) == "first"


def test_a_worker_that_never_starts_leaves_the_work_to_the_others(hands):
    hands[1].dead = True
    with WorkerPool(hands, ready) as pool:
        names = {result(pool.submit(lambda hand: hand.name)) for _ in range(50)}
    assert "second" not in names


def test_a_baseline_that_is_not_to_be_had_is_told_at_once(pool):
    tries = []

    def lacks(hand):
        tries.append(hand.name)
        raise BaselineUnavailableError("no fa3 here")

    with pytest.raises(BaselineUnavailableError):
        result(pool.submit(lacks))
    assert len(tries) == 1


def test_a_mistake_of_our_own_reaches_whoever_waits(pool):
    with pytest.raises(ZeroDivisionError):
        result(pool.submit(lambda _hand: 1 / 0))
    assert result(pool.submit(lambda _hand: 1)) == 1


def test_dropping_ends_what_waits_and_what_is_under_way_and_leaves_the_pool_of_use(hands):
    with WorkerPool(hands[:1], ready) as pool:
        started = threading.Event()

        def until_aborted(hand):
            started.set()
            assert hand.released.wait(PATIENCE_S)
            fails(hand)

        under_way, waiting = pool.submit(until_aborted), pool.submit(lambda hand: hand.name)
        assert started.wait(PATIENCE_S)
        pool.abort()
        for turn in (under_way, waiting):
            with pytest.raises(TurnDropped):
                result(turn)
        assert hands[0].starts == 1  # it was not started again for nothing
        assert result(pool.submit(lambda hand: hand.name)) == "first"


def test_a_closed_pool_has_ended_its_workers_and_takes_nothing_more(hands):
    pool = WorkerPool(hands, ready)
    assert result(pool.submit(lambda _hand: 1)) == 1
    pool.close()
    pool.close()
    assert all(hand.closed for hand in hands)
    with pytest.raises(TurnDropped, match="closed"):
        result(pool.submit(lambda _hand: 1))


def test_a_pool_needs_a_worker():
    with pytest.raises(ValueError, match="no workers"):
        WorkerPool([], ready)


def test_a_turn_does_not_wait_for_its_dead_worker_to_come_back(hands):
    taken_again, tries = threading.Event(), []

    def slow_to_return(hand):
        if hand.starts and hand.dead:
            assert taken_again.wait(PATIENCE_S), "the turn waits for the worker that it lost"
        ready(hand)

    def dies_first(hand):
        tries.append(hand)
        if len(tries) == 1:
            breaks(hand)
        taken_again.set()
        return hand

    with WorkerPool(hands, slow_to_return) as pool:
        assert result(pool.submit(dies_first)) is not tries[0]
