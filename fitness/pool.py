"""An evaluator over several workers: candidates compile ahead of them and are measured by whichever is free."""

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

from fitness.evaluation import Evaluation
from fitness.evaluator import Compiled, Evaluator, Measurer
from fitness.faults import EnvironmentFault
from fitness.measure import ended_two_workers
from fitness.race import Bar
from fitness.scenario import Suite
from fitness.worker import BaselineFacts
from fitness.worker_pool import PoolWorker, TwoWorkersLost, WorkerPool


class MeasuringWorker(Measurer, PoolWorker, Protocol):
    """A worker of a pool that measures."""

    def baseline(self, suite: Suite) -> BaselineFacts:
        """What it measures beside. Raises EnvironmentFault where it does not start."""


class PooledEvaluator:
    """Judges sources on all workers of a pool at once; what it says of each is what `evaluator` would say.

    Compiling keeps `compile_threads` busy ahead of the workers. Where it disturbs the timing, as on the host, the two
    take turns instead.
    """

    def __init__(self, evaluator: Evaluator, workers: WorkerPool[MeasuringWorker], *, compile_threads: int) -> None:
        self._evaluator = evaluator
        self._workers = workers
        self._compilers = ThreadPoolExecutor(compile_threads, thread_name_prefix="compiling")
        self._quiet: AbstractContextManager[object] = (
            threading.Lock() if evaluator.target.compiling_disturbs else nullcontext()
        )

    @property
    def evaluator(self) -> Evaluator:
        """What judges one candidate on one worker."""
        return self._evaluator

    @property
    def workers(self) -> WorkerPool[MeasuringWorker]:
        """Who measures."""
        return self._workers

    def against(self, bar: Bar | None) -> "PooledEvaluator":
        """The same, ending the timing of a candidate once it can no longer reach the bar."""
        racing = copy.copy(self)
        racing._evaluator = self._evaluator.against(bar)
        return racing

    def compile(self, source: str) -> Evaluation | Compiled:
        """See Evaluator."""
        return self._evaluator.compile(source)

    def submit(self, source: str) -> "Future[Evaluation]":
        """The record to come of a candidate, which may be cancelled as long as it is not complete.

        It raises EnvironmentFault as `Evaluator.evaluate` does. A candidate that ended two workers is a RUNTIME_ERROR.
        """
        outcome: Future[Evaluation] = Future()
        compiling = self._compilers.submit(self._compile, source, outcome)
        compiling.add_done_callback(lambda done: self._hand_over(done, outcome))
        return outcome

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """The records in the order of the sources; `on_done(index, evaluation)` hears of each as it is complete.

        Raises the first EnvironmentFault once all others are done with. After any other exception nothing goes on.
        """
        waiting = {self.submit(source): index for index, source in enumerate(sources)}
        done: dict[int, Evaluation] = {}
        faults: list[EnvironmentFault] = []
        try:
            for future in as_completed(waiting):
                try:
                    evaluation = future.result()
                except EnvironmentFault as fault:
                    faults.append(fault)
                    continue
                done[waiting[future]] = evaluation
                if on_done is not None:
                    on_done(waiting[future], evaluation)
        except BaseException:
            self.drop(waiting)
            raise
        if faults:
            raise faults[0]
        return [done[index] for index in range(len(sources))]

    def drop(self, outcomes: "Iterable[Future[Evaluation]]") -> None:
        """Let go of what was submitted, and of everything else that the workers do."""
        for outcome in outcomes:
            outcome.cancel()
        self._workers.abort()

    def close(self) -> None:
        """End the workers and wait for what compiles."""
        self._workers.close()
        self._compilers.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compile(self, source: str, outcome: "Future[Evaluation]") -> Evaluation | Compiled | None:
        if outcome.cancelled():
            return None
        with self._quiet:
            return self._evaluator.compile(source)

    def _hand_over(self, compiling: "Future[Evaluation | Compiled | None]", outcome: "Future[Evaluation]") -> None:
        """Have a worker measure what compiled; whoever waits hears at once of what did not."""
        if compiling.cancelled() or outcome.cancelled():
            outcome.cancel()
            return
        if (error := compiling.exception()) is not None:
            _end(outcome, error)
        elif isinstance(compiled := compiling.result(), Compiled):
            candidate = compiled
            turn = self._workers.submit(
                lambda worker: self._measure(worker, candidate, outcome), last=candidate.foretells_collapse
            )
            turn.add_done_callback(lambda done: self._conclude(done, candidate, outcome))
        else:
            _end(outcome, compiled)

    def _measure(
        self, worker: MeasuringWorker, candidate: Compiled, outcome: "Future[Evaluation]"
    ) -> Evaluation | None:
        if outcome.cancelled():
            return None
        with self._quiet:
            return self._evaluator.beside(worker).measure(candidate)

    def _conclude(self, turn: "Future[Evaluation | None]", candidate: Compiled, outcome: "Future[Evaluation]") -> None:
        error = None if turn.cancelled() else turn.exception()
        if isinstance(error, TwoWorkersLost):
            _end(outcome, self._evaluator.record(candidate, ended_two_workers([error])))
        else:
            _end(outcome, error or (None if turn.cancelled() else turn.result()))


def _end(outcome: "Future[Evaluation]", found: Evaluation | BaseException | None) -> None:
    """Tell whoever waits, unless nobody does any more."""
    if found is None:
        outcome.cancel()
    elif outcome.set_running_or_notify_cancel():
        if isinstance(found, Evaluation):
            outcome.set_result(found)
        else:
            outcome.set_exception(found)
