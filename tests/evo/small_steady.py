"""Small steady searches, and what holds of each of them."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from small_search import KnobJudge, SmallSearch, assemble, recorded_table, small_config, snapshot

from evo.answerers.answerer import Answerer, Reply, Request
from evo.answerers.offline import OfflineAnswerer
from evo.config import Config, EvolutionKind
from evo.judging import EvaluatesAll
from evo.steady import evolve_steadily
from evo.stop import StopSearch
from fitness.evaluation import Evaluation
from population.archive import create_archive, open_archive
from population.run_folder import RunFolder


def steady(concurrency: int = 3, **rest: Any) -> Config:
    config = small_config(**rest)
    return replace(
        config,
        evolution=replace(config.evolution, kind=EvolutionKind.steady),
        answerer=replace(config.answerer, concurrency=concurrency),
    )


def one_by_one(rng_seed: int = 0) -> Config:
    """A search that is deterministic: one question at a time, and a judge that answers at once."""
    return replace(steady(concurrency=1, generations=4, lambda_=3), rng_seed=rng_seed)


@dataclass
class Counting:
    """The offline answerer; knows what it was asked."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    description: str = "counting"
    rng_seed: int = 0

    def answer(self, request: Request) -> Reply:
        self.asked.append((request.number, request.attempt))
        return OfflineAnswerer(rng_seed=self.rng_seed).answer(request)


class Deferring(KnobJudge):
    """Keeps what was submitted, and finishes it in an order of its own once `room` of them wait."""

    def __init__(self, rng_seed: int = 0, room: int = 2) -> None:
        super().__init__()
        self._rng = random.Random(rng_seed)
        self._room = room
        self._waiting: list[tuple[str, Future[Evaluation]]] = []
        self._lock = threading.Lock()
        self.dropped = 0

    def submit(self, source: str) -> "Future[Evaluation]":
        future: Future[Evaluation] = Future()
        with self._lock:
            self._waiting.append((source, future))
            self.judged.append(source)
            full = len(self._waiting) >= self._room
        if full:
            self._finish_one()
        else:
            timer = threading.Timer(0.02, self._finish_one)  # nothing more may come
            timer.daemon = True
            timer.start()
        return future

    def drop(self, outcomes: Sequence["Future[Evaluation]"]) -> None:
        for outcome in outcomes:
            self.dropped += outcome.cancel()

    def _finish_one(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            source, future = self._waiting.pop(self._rng.randrange(len(self._waiting)))
        if future.set_running_or_notify_cancel():
            future.set_result(recorded_table().evaluate(source))


def go(
    config: Config, folder: RunFolder, judge: EvaluatesAll | None = None, answerer: Answerer | None = None,
    before: Callable[[SmallSearch], None] = lambda _search: None,
) -> StopSearch:  # fmt: skip
    random.seed("whatever the process did before")
    with open_archive(folder) if folder.archive.exists() else create_archive(folder) as archive:
        search = assemble(config, folder, archive, judge or KnobJudge(), answerer)
        before(search)
        return evolve_steadily(search.state, search.toolbox, config.evolution.lambda_)


def end_of(folder: RunFolder) -> dict[str, Any]:
    """How a run ended: its snapshot, without replies to questions that were under way when it did.

    Whether the last one had been put to the answerer by then, and is waited for, or had not is a matter of threads.
    """
    seen = snapshot(folder)
    settled = {attempt.number for attempt in seen["attempts"]}
    seen["replies"] = [reply for reply in seen["replies"] if reply[0] in settled]
    return seen


def require_sound(folder: RunFolder) -> dict[str, Any]:
    """What holds of every steady run, however often it was interrupted."""
    seen = snapshot(folder)
    numbers = [attempt.number for attempt in seen["attempts"]]
    assert len(set(numbers)) == len(numbers)
    judged = Counter(name for name, _ in seen["evaluations"])
    assert set(judged.values()) == {1}  # nothing is measured twice
    members = [member["id"] for member in seen["checkpoint"]["population"]]
    assert set(members) <= set(judged)
    return seen
