"""A pool of real, killable worker processes: what they report is what one reports, and they can be told to stop."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fitness.evaluation import Status
from fitness.fork_server import start_fork_server
from fitness.process_limits import ProcessLimits
from fitness.worker import PRELOAD, Worker
from fitness.worker_pool import TurnDropped, TwoWorkersLost, WorkerPool
from tests.fitness.test_worker import SUITE, job, open_fake_side

PATIENCE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> None:
    start_fork_server(PRELOAD)


@pytest.fixture
def workers() -> list[Worker]:
    return [Worker(open_fake_side, limits=ProcessLimits(), shares_memory=False) for _ in range(2)]


@pytest.fixture
def pool(workers) -> Iterator[WorkerPool[Worker]]:
    with WorkerPool(workers, lambda worker: worker.baseline(SUITE)) as made:
        yield made


def test_candidates_that_crash_beside_right_ones_are_each_blamed_for_themselves(pool):
    names = ["right", "crashes", "right", "zeros", "crashes", "right"]
    turns = [pool.submit(lambda worker, name=name: worker.measure(job(name))) for name in names]
    found = [turn.result(PATIENCE_S) for turn in turns]
    expected = {"right": Status.PASSED, "crashes": Status.RUNTIME_ERROR, "zeros": Status.INCORRECT}
    assert [each.status for each in found] == [expected[name] for name in names]
    assert all("SIGSEGV" in each.reason for each in found if each.status is Status.RUNTIME_ERROR)


def test_a_worker_that_the_system_kills_between_two_candidates_is_no_candidates_fault(pool, workers):
    assert pool.submit(lambda worker: worker.measure(job("right"))).result(PATIENCE_S).status is Status.PASSED
    for worker in workers:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGKILL)
    turns = [pool.submit(lambda worker: worker.measure(job("right"))) for _ in range(4)]
    assert {turn.result(PATIENCE_S).status for turn in turns} == {Status.PASSED}


def test_a_turn_whose_worker_dies_of_no_fault_of_the_candidate_is_given_out_once_more(pool):
    tries = []

    def spoilt_once(worker):
        tries.append(worker)
        return worker.measure(job("breaks_later" if len(tries) == 1 else "right"))

    assert pool.submit(spoilt_once).result(PATIENCE_S).status is Status.PASSED
    assert len(tries) == 2


def test_a_candidate_after_which_two_workers_die_is_to_blame_and_the_workers_come_back(pool):
    """The device crashes while the baseline is prepared, which says nothing of the candidate until it happens again."""
    with pytest.raises(TwoWorkersLost, match="SIGSEGV"):
        pool.submit(lambda worker: worker.measure(job("breaks_later"))).result(PATIENCE_S)
    turns = [pool.submit(lambda worker: worker.measure(job("right"))) for _ in range(4)]
    assert {turn.result(PATIENCE_S).status for turn in turns} == {Status.PASSED}


def test_endless_candidates_are_ended_from_another_thread_and_the_workers_come_back(pool):
    at_work = threading.Barrier(3)

    def endless(worker):
        at_work.wait(PATIENCE_S)
        return worker.measure(replace(job("loops"), settings=replace(job("loops").settings, call_timeout_s=1000.0)))

    turns = [pool.submit(endless) for _ in range(2)]
    at_work.wait(PATIENCE_S)
    while not all(turn.done() for turn in turns):  # a process that is only being started is not there to be killed
        pool.abort()
    for turn in turns:
        with pytest.raises(TurnDropped):  # and no RUNTIME_ERROR of a candidate that was killed
            turn.result()
    assert pool.submit(lambda worker: worker.measure(job("right"))).result(PATIENCE_S).status is Status.PASSED
