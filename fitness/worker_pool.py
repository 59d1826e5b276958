"""Several workers behind one queue: every turn is taken by exactly one of them, and once more where that one dies."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from fitness.faults import BaselineUnavailableError, DoubtfulFault, EnvironmentFault

logger = logging.getLogger(__name__)

_DEATHS = 2  # of workers, after which a turn is not given out again
_ABORT_S = 30.0  # for workers that were killed in mid-turn to notice


class PoolWorker(Protocol):
    """What a pool needs of a worker; the turns need more."""

    def abort(self) -> None:
        """From another thread: have the request under way fail soon."""

    def close(self) -> None:
        """End it; a later request may start it again."""


W = TypeVar("W", bound=PoolWorker)
Outcome = TypeVar("Outcome")


class TwoWorkersLost(EnvironmentFault):
    """A turn ended two workers, and at least one of them came back at once: what it ran is to blame."""


class TurnDropped(EnvironmentFault):
    """The turn was under way when the pool was told to drop everything."""


@dataclass(order=True)
class _Turn(Generic[W]):
    """Something to be done by one worker; the least comes first."""

    place: int  # -1 before all others, 1 after them
    number: int
    work: Callable[[W], object] = field(compare=False)
    future: "Future[object]" = field(compare=False, default_factory=Future)
    faults: list[EnvironmentFault] = field(compare=False, default_factory=list)
    a_worker_came_back: bool = field(compare=False, default=False)
    dropped: bool = field(compare=False, default=False)


class WorkerPool(Generic[W]):
    """Workers, each with a thread of its own that takes turns from one queue; a worker does one thing at a time.

    `ready(worker)` raises EnvironmentFault where a worker cannot be started, or is not like the others. A turn during
    which its worker fails is given out once more; a worker that cannot be started again leaves the pool. When none is
    left every turn fails, and the next one that is submitted has all workers tried again.
    """

    def __init__(self, workers: Sequence[W], ready: Callable[[W], None]) -> None:
        if not workers:
            raise ValueError("a pool of no workers; expected at least one")
        self._workers = tuple(workers)
        self._ready = ready
        self._changed = threading.Condition()
        self._waiting: list[_Turn[W]] = []
        self._under_way: dict[int, tuple[W, _Turn[W]]] = {}  # by the worker's place
        self._present: set[int] = set()
        self._numbers = itertools.count()
        self._closed = False

    @property
    def size(self) -> int:
        """How many workers there are, those that left among them."""
        return len(self._workers)

    def submit(self, work: Callable[[W], Outcome], *, first: bool = False, last: bool = False) -> "Future[Outcome]":
        """The outcome to come of `work(worker)`, in the order of submission but for the `first` and the `last`.

        It raises EnvironmentFault where no worker is left, TwoWorkersLost where the work itself seems to end them.
        """
        turn: _Turn[W] = _Turn(place=last - first, number=next(self._numbers), work=work)
        with self._changed:
            if not self._closed:
                if not self._present:
                    self._start()
                heapq.heappush(self._waiting, turn)
                self._changed.notify_all()
        if self._closed:
            _fail(turn, TurnDropped("the pool is closed"))
        return turn.future  # type: ignore[return-value]  # its outcome is that of `work`

    def abort(self) -> None:
        """Drop what waits and what is under way; returns once no worker is at work."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
            at_work = list(self._under_way.values())
            for _, turn in at_work:
                turn.dropped = True
        for turn in waiting:
            _fail(turn, TurnDropped("dropped before it began"))
        for worker, _ in at_work:
            worker.abort()
        with self._changed:
            if not self._changed.wait_for(lambda: not self._dropped_under_way(), timeout=_ABORT_S):
                logger.error("workers are still at work %g s after they were told to stop", _ABORT_S)

    def close(self) -> None:
        """End the threads and the workers. May be called twice."""
        self.abort()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.abort()  # one that is being started, too
        with self._changed:
            self._changed.wait_for(lambda: not self._present, timeout=_ABORT_S)
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """Let every worker take part, whether or not it left before. Called with the lock held."""
        for place, worker in enumerate(self._workers):
            self._present.add(place)
            name = f"worker {place}"
            threading.Thread(target=self._serve, args=(place, worker), name=name, daemon=True).start()

    def _serve(self, place: int, worker: W) -> None:
        """Take turns until the pool is closed or the worker cannot go on."""
        fault = self._trouble(worker)
        while fault is None and (turn := self._next(place, worker)) is not None:
            fault = self._take(place, worker, turn)
        self._leave(place, fault)

    def _next(self, place: int, worker: W) -> _Turn[W] | None:
        """The next turn that somebody still waits for; None once the pool is closed."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return None
                turn = heapq.heappop(self._waiting)
                if turn.future.running() or turn.future.set_running_or_notify_cancel():
                    self._under_way[place] = (worker, turn)
                    return turn

    def _take(self, place: int, worker: W, turn: _Turn[W]) -> EnvironmentFault | None:
        """Do the work of a turn; why the worker has to leave, or None."""
        try:
            outcome = turn.work(worker)
        except BaselineUnavailableError as error:  # it will not come by itself, here or elsewhere
            self._free(place)
            _fail(turn, error)
        except EnvironmentFault as fault:
            return self._after_death(place, worker, turn, fault)
        except BaseException as error:  # noqa: BLE001  # the thread's edge: whoever waits for the turn must hear of it
            self._free(place)
            _fail(turn, error)
        else:
            self._free(place)
            if turn.dropped:  # its worker was told to stop, and what came of it may be just that
                _fail(turn, TurnDropped("dropped while it was under way"))
            else:
                turn.future.set_result(outcome)
        return None

    def _after_death(self, place: int, worker: W, turn: _Turn[W], fault: EnvironmentFault) -> EnvironmentFault | None:
        """Give a turn out again whose worker failed, or say what is to blame; why the worker has to leave, or None."""
        self._free(place)
        if turn.dropped:
            _fail(turn, TurnDropped("dropped while it was under way"))
            return None
        turn.faults.append(fault)
        again = len(turn.faults) < _DEATHS
        if again:  # before the worker comes back, for that may take long
            self._put(turn)
        trouble = self._trouble(worker)
        logger.warning("worker %d failed, and %s: %s", place, "leaves" if trouble else "works again", fault)
        turn.a_worker_came_back |= trouble is None
        if not again:
            both = TwoWorkersLost("; ".join(dict.fromkeys(map(str, turn.faults))))
            # Two devices that stay broken say more of the machine than of the candidate, and so does a full disk.
            doubtful = all(isinstance(each, DoubtfulFault) for each in turn.faults)
            _fail(turn, both if doubtful and turn.a_worker_came_back else fault)
        return trouble

    def _free(self, place: int) -> None:
        """A worker is done with its turn."""
        with self._changed:
            del self._under_way[place]
            self._changed.notify_all()

    def _put(self, turn: _Turn[W]) -> None:
        with self._changed:
            heapq.heappush(self._waiting, turn)
            self._changed.notify_all()

    def _trouble(self, worker: W) -> EnvironmentFault | None:
        """Why a worker cannot be used; None where it can."""
        try:
            self._ready(worker)
        except EnvironmentFault as fault:
            return fault
        except Exception as error:  # noqa: BLE001  # the thread's edge: turns that wait must not wait for ever
            return EnvironmentFault(f"a worker cannot be started: {error!r}")
        return None

    def _leave(self, place: int, fault: EnvironmentFault | None) -> None:
        """Count a worker out; where it was the last, nothing that waits can be done."""
        if fault is not None:
            logger.warning("worker %d leaves the pool: %s", place, fault)
        with self._changed:
            self._present.discard(place)
            stranded = [] if self._present or self._closed else self._waiting
            if stranded:
                self._waiting = []
            self._changed.notify_all()
        for turn in stranded:
            _fail(turn, fault or TurnDropped("the pool is closed"))

    def _dropped_under_way(self) -> bool:
        return any(turn.dropped for _, turn in self._under_way.values())


def _fail(turn: _Turn[W], error: BaseException) -> None:
    """End a turn that nobody has cancelled."""
    if turn.future.running() or turn.future.set_running_or_notify_cancel():
        turn.future.set_exception(error)
