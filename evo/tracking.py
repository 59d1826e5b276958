"""How a run stands: counts over all its parts, kept in step with what is judged."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from evo.loop import State
from evo.stop import Standing
from fitness.evaluation import Evaluation
from population.archive_reader import ArchiveReader


@dataclass(kw_only=True)
class Tracker:
    """Counts evaluations and the best of them, over all parts of a run: a resumed one is told of the earlier ones."""

    archive: ArchiveReader
    earlier_s: float  # spent by the run's earlier parts
    clock: Callable[[], float] = time.monotonic
    evaluations: int = 0
    since_best: int = 0
    best_geomean: float = 0.0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def judged(self, evaluation: Evaluation) -> None:
        """One more evaluation."""
        self.recall([evaluation.geomean or 0.0])

    def recall(self, geomeans: Iterable[float]) -> None:
        """So many more evaluations, in their order; 0.0 stands for one that failed."""
        for geomean in geomeans:
            self.evaluations += 1
            self.since_best += 1
            if geomean > self.best_geomean:
                self.best_geomean, self.since_best = geomean, 0

    def elapsed_s(self) -> float:
        """Seconds over all parts of the run."""
        return self.earlier_s + self.clock() - self._started

    def standing(self, state: State) -> Standing:
        """What stop conditions look at."""
        return Standing(
            generation=state.generation,
            evaluations=self.evaluations,
            evaluations_since_best=self.since_best,
            best_geomean=self.best_geomean,
            barren_generations=state.barren_generations,
            elapsed_s=self.elapsed_s(),
            spend_usd=self.spend_usd(),
        )

    def spend_usd(self) -> float:
        """What the answerer has cost."""
        return self.archive.spend_so_far()["cost_usd"]
