"""The evaluator over several workers says what the one over a single worker says. Fakes compile and measure."""

import threading

import pytest

from fitness.evaluation import Status
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.pool import PooledEvaluator
from fitness.race import Bar
from fitness.worker_pool import WorkerPool
from tests.fitness.test_evaluator import TARGET, FakeCompiler, FakeWorker, evaluator, replace, source

PATIENCE_S = 20.0
SOURCES = [source(word) for word in ("right", "broken", "wrong", "serial", "right too", "void")]


class PoolWorker(FakeWorker):
    def __init__(self, outcomes=None):
        super().__init__(outcomes)
        self.released = threading.Event()
        self.dead = False

    def abort(self):
        self.released.set()

    def close(self):
        pass


def ready(worker):
    if worker.dead:
        raise EnvironmentFault("the device is gone")


def words(worker):
    return [next(iter(job.binaries.values())).name for job in worker.jobs]


def pooled(workers, compiler=None, *, target=TARGET, compile_threads=2):
    judge = evaluator(workers[0], compiler, target=target)
    return PooledEvaluator(judge, WorkerPool(workers, ready), compile_threads=compile_threads)


def verdict(evaluation):
    return evaluation.source_sha256, evaluation.status, evaluation.reason, evaluation.geomean, evaluation.key


def test_the_records_are_those_of_one_worker_in_the_order_of_the_sources():
    alone = evaluator().evaluate_all(SOURCES)
    workers = [PoolWorker() for _ in range(3)]
    heard = {}
    with pooled(workers) as judge:
        found = judge.evaluate_all(SOURCES, on_done=heard.__setitem__)
    assert list(map(verdict, found)) == list(map(verdict, alone))
    assert [heard[place] for place in range(len(SOURCES))] == found
    assert sorted(word for worker in workers for word in words(worker)) == sorted(
        ["right", "wrong", "serial", "right too", "void"]
    )


def test_candidates_compile_while_a_worker_measures():
    measuring, second_compiles = threading.Event(), threading.Event()

    class Compiler(FakeCompiler):
        def compile(self, text, builds):
            if text == source("right too"):
                assert measuring.wait(PATIENCE_S)
                second_compiles.set()
            return super().compile(text, builds)

    class Worker(PoolWorker):
        def measure(self, job):
            measuring.set()
            assert second_compiles.wait(PATIENCE_S), "nothing compiles ahead"
            return super().measure(job)

    with pooled([Worker()], Compiler()) as judge:
        found = judge.evaluate_all([source("right"), source("right too")])
    assert [each.status for each in found] == [Status.PASSED, Status.PASSED]


def test_where_compiling_disturbs_it_never_runs_beside_a_measurement():
    inside, overlaps = [], []

    def alone(name):
        overlaps.extend(inside)
        inside.append(name)
        inside.remove(name)

    class Compiler(FakeCompiler):
        def compile(self, text, builds):
            alone("compiling")
            return super().compile(text, builds)

    class Worker(PoolWorker):
        def measure(self, job):
            alone("measuring")
            return super().measure(job)

    with pooled([Worker()], Compiler(), target=replace(TARGET, compiling_disturbs=True)) as judge:
        judge.evaluate_all([source(f"right {number}") for number in range(20)])
    assert overlaps == []


def test_what_a_worker_died_of_by_itself_is_measured_by_another():
    class DiesOnce(PoolWorker):
        deaths = 0

        def measure(self, job):
            if DiesOnce.deaths == 0:
                DiesOnce.deaths = 1
                raise EnvironmentFault("the worker failed, and not by the candidate")
            return super().measure(job)

    workers = [DiesOnce(), DiesOnce()]
    with pooled(workers) as judge:
        found = judge.evaluate_all(SOURCES)
    assert list(map(verdict, found)) == list(map(verdict, evaluator().evaluate_all(SOURCES)))
    assert DiesOnce.deaths == 1


def test_a_candidate_that_ends_two_workers_is_a_runtime_error_with_that_reason():
    deadly = {"wrong": DoubtfulFault("the driver gave up")}
    workers = [PoolWorker(deadly) for _ in range(3)]
    with pooled(workers) as judge:
        found = judge.evaluate_all(SOURCES)
    assert found[2].status is Status.RUNTIME_ERROR
    assert found[2].reason == (
        "it ended two workers, and one of them at least was well again at once: the driver gave up"
    )
    assert [each.status for each in found if each is not found[2]] == [
        Status.PASSED, Status.COMPILE_ERROR, Status.PASSED, Status.PASSED, Status.PASSED,
    ]  # fmt: skip
    assert sum(words(worker).count("wrong") for worker in workers) == 2


def test_what_no_candidate_can_bring_about_is_never_held_against_one():
    workers = [PoolWorker({"wrong": EnvironmentFault("the disk is full")}) for _ in range(3)]
    with pooled(workers) as judge, pytest.raises(EnvironmentFault, match="the disk is full"):
        judge.evaluate_all(SOURCES)
    assert sum(words(worker).count("wrong") for worker in workers) == 2


def test_a_candidate_of_which_the_compiler_foretells_a_collapse_waits_for_all_others():
    compiled, at_work = [], threading.Event()

    class Compiler(FakeCompiler):
        def compile(self, text, builds):
            if text != source("first"):
                assert at_work.wait(PATIENCE_S)
            compiled.append(text)
            return super().compile(text, builds)

    class Worker(PoolWorker):
        def measure(self, job):
            if words(self) == []:
                at_work.set()
                assert waiting.wait(PATIENCE_S), "not all of them came to wait"
            return super().measure(job)

    waiting = threading.Event()

    class Pool(WorkerPool):
        submitted = 0

        def submit(self, work, **order):
            turn = super().submit(work, **order)
            Pool.submitted += 1
            if Pool.submitted == 4:
                waiting.set()
            return turn

    worker = Worker()
    judge = PooledEvaluator(evaluator(worker, Compiler()), Pool([worker], ready), compile_threads=1)
    with judge:
        judge.evaluate_all([source(word) for word in ("first", "serial", "right", "right too")])
    assert compiled == [source(word) for word in ("first", "serial", "right", "right too")]
    assert words(worker) == ["first", "right", "right too", "serial"]


def test_with_no_worker_left_the_fault_comes_after_what_could_be_done():
    class Breaks(PoolWorker):
        def measure(self, job):
            self.dead = True
            raise EnvironmentFault("fell off the bus")

    heard = {}
    with pooled([Breaks(), Breaks()]) as judge, pytest.raises(EnvironmentFault, match=r"bus|gone"):
        judge.evaluate_all(SOURCES, on_done=heard.__setitem__)
    assert [(place, each.status) for place, each in heard.items()] == [(1, Status.COMPILE_ERROR)]


def test_a_disk_that_is_full_is_no_workers_fault():
    worker = PoolWorker()
    heard = {}
    with pooled([worker]) as judge, pytest.raises(EnvironmentFault, match="no space left"):
        judge.evaluate_all([source("disk full"), source("right")], on_done=heard.__setitem__)
    assert list(heard) == [1]
    assert words(worker) == ["right"]


def test_whoever_ends_a_generation_ends_what_is_measured_for_it():
    class Endless(PoolWorker):
        def measure(self, job):
            if words_of(job) == "right":
                return super().measure(job)
            assert self.released.wait(PATIENCE_S)
            raise EnvironmentFault("killed")

    def words_of(job):
        return next(iter(job.binaries.values())).name

    def interrupt(place, evaluation):
        raise KeyboardInterrupt

    workers = [Endless(), Endless()]
    with pooled(workers) as judge, pytest.raises(KeyboardInterrupt):
        judge.evaluate_all([source("right"), source("endless"), source("endless 2")], on_done=interrupt)


def test_a_race_holds_on_every_worker():
    workers = [PoolWorker(), PoolWorker()]
    bar = Bar(geomean=1.5, ceilings={})
    with pooled(workers) as judge:
        judge.against(bar).evaluate_all([source(f"right {number}") for number in range(8)])
    assert [job.bar for worker in workers for job in worker.jobs] == [bar] * 8
