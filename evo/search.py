"""A search put together: what it remembers, how it is kept, where it stands, and what has come of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deap import base

from evo.answerers.answerer import Answerer
from evo.choices import Settled
from evo.config import Config
from evo.console import RunConsole
from evo.finished import refuse_less_than_made
from evo.history import History
from evo.judging import EvaluatesAll
from evo.keeping import Keeper, newest_checkpoint
from evo.loggers.reporting import NO_REPORT, Report
from evo.loop import State
from evo.result import build_result
from evo.run_settings import as_begun, fingerprint, fixed_settings
from evo.stop import StopSearch
from evo.toolbox import Memory, build_sampler, build_toolbox, named_rng
from evo.tracking import Tracker
from population.archive import Archive
from population.checkpoint import Checkpoint
from population.run_folder import RunFolder
from questions.bank import Bank


@dataclass(frozen=True, kw_only=True)
class Search:
    """All that a search works with but for its evaluator; `prepare_search` makes one."""

    config: Config
    settled: Settled
    bank: Bank
    memory: Memory
    keeper: Keeper
    checkpoint: Checkpoint | None
    note: Callable[[str], None]

    def toolbox(
        self, evaluator: EvaluatesAll, console: RunConsole, answerer: Answerer | None = None, report: Report = NO_REPORT
    ) -> base.Toolbox:
        """The loop's steps; without an answerer the configured one is built. Raises ConfigError or AnswererError."""
        return build_toolbox(
            self.config, self.settled, self.memory, evaluator, self.keeper, console, self.note, answerer, report,
            begun_after=self.checkpoint.generation if self.checkpoint else 0,
        )  # fmt: skip

    def state(self) -> State:
        """Where the search stands: as its checkpoint says, or before its beginning. To be called once."""
        if self.checkpoint is None:
            return self.keeper.fresh(self.config.rng_seed)
        state = self.keeper.restore(self.checkpoint, self.bank)
        self.memory.tracker.recall(self.memory.history.geomeans().values())  # what is made again tells of its own
        return state

    def result(self, state: State, stop: StopSearch) -> dict[str, Any]:
        """What has come of it, as result.json holds it."""
        summary = {
            "suite": self.settled.suite.name,
            "style": ", ".join(self.config.asked_styles),
            "answerer": self.config.answerer.kind.value,
            "model": self.config.answerer.model,
            "selection": self.config.selection.kind.value,
            "rng_seed": self.config.rng_seed,
        }
        archive = self.memory.archive
        return build_result(archive, settings=summary, generations=state.generation, stop_reason=stop.reason)


def prepare_search(
    config: Config, settled: Settled, bank: Bank, archive: Archive, folder: RunFolder, note: Callable[[str], None]
) -> Search:
    """A new search, or the rest of the one that the folder holds. Raises CheckpointError and ConfigError."""
    settings = fingerprint(as_begun(archive, fixed_settings(config, settled)))
    checkpoint = newest_checkpoint(folder, settings, note)
    if checkpoint is not None:
        made = archive.evaluation_count()
        refuse_less_than_made(config.stop, evaluations=made, generations=checkpoint.generation)
    memory = Memory(
        archive=archive,
        history=History(),
        sampler=build_sampler(config, bank),
        search_rng=named_rng(config.rng_seed, "search"),
        tracker=Tracker(archive=archive, earlier_s=checkpoint.counter("elapsed_ms") / 1000 if checkpoint else 0.0),
    )
    keeper = Keeper(
        run=folder,
        archive=archive,
        history=memory.history,
        sampler=memory.sampler,
        search_rng=memory.search_rng,
        keep=config.evolution.keep_checkpoints,
        hall_of_fame_size=config.evolution.hall_of_fame,
        settings_fingerprint=settings,
        elapsed_s=memory.tracker.elapsed_s,
    )
    return Search(
        config=config, settled=settled, bank=bank, memory=memory, keeper=keeper, checkpoint=checkpoint, note=note
    )
