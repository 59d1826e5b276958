"""Keeping a run: after every generation all that a resume needs, and the way back from it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from deap import tools

from evo.added_kernels import births_after
from evo.archived_past import ArchivedPast
from evo.attempt_events import ATTEMPT_EVENT
from evo.history import History
from evo.loop import State
from evo.open_questions import open_at
from evo.selection import viable
from population.archive import Archive
from population.atomic_file import strict_json
from population.checkpoint import (
    Checkpoint,
    Member,
    load_newest,
    rng_state_to_json,
    save_checkpoint,
)
from population.faults import CheckpointError
from population.individual import Individual, set_fitness, similar
from population.records import EventRecord
from population.run_folder import RunFolder
from questions.bank import Bank
from questions.sampler import QuestionSampler


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """Writes checkpoints and the outcome of every question; reads both back on resume."""

    run: RunFolder
    archive: Archive
    history: History
    sampler: QuestionSampler
    search_rng: random.Random  # decides on crossover; DEAP's operators draw from the global generator
    keep: int
    hall_of_fame_size: int
    settings_fingerprint: str
    elapsed_s: Callable[[], float]

    def save(self, state: State) -> None:
        """Keep the attempts that are not yet in the archive, then the checkpoint that counts on them."""
        with self.archive.transaction():
            for attempt in self.history.attempts_of(state.generation):
                self.archive.record_event(EventRecord(kind=ATTEMPT_EVENT, record=strict_json(attempt.to_json())))
        checkpoint = Checkpoint(
            generation=state.generation,
            population=tuple(Member.of(individual) for individual in state.population),
            hall_of_fame=tuple(Member.of(individual) for individual in state.hall_of_fame),
            logbook=tuple(dict(entry) for entry in state.logbook),
            rng_states={"global": rng_state_to_json(random), "search": rng_state_to_json(self.search_rng)},
            sampler=self.sampler.state(),
            counters={
                "next_birth": state.next_birth,
                "barren_generations": state.barren_generations,
                "elapsed_ms": round(1000 * self.elapsed_s()),
            },
            settings_fingerprint=self.settings_fingerprint,
        )
        save_checkpoint(self.run.checkpoints, checkpoint, keep=self.keep)

    def fresh(self, rng_seed: int) -> State:
        """The state of a search that has not begun; seeds the global generator, which DEAP's operators draw from."""
        random.seed(f"{rng_seed}:selection")
        return self._empty()

    def _empty(self) -> State:
        return State(hall_of_fame=tools.HallOfFame(self.hall_of_fame_size, similar=similar))

    def restore(self, checkpoint: Checkpoint, bank: Bank) -> State:
        """The state that was saved, with every generator where it stood and the history up to there.

        Raises CheckpointError where the archive lacks an individual of it.
        """
        state = self._empty()
        state.generation = checkpoint.generation
        state.next_birth = checkpoint.counter("next_birth")
        state.barren_generations = checkpoint.counter("barren_generations")
        for entry in checkpoint.logbook:
            state.logbook.record(**entry)
        under_way = open_at(self.archive, state.generation) | births_after(self.archive, state.generation)
        self.history.recall(ArchivedPast(self.archive, before=state.next_birth, without=under_way))
        state.population = viable([self._member(member) for member in checkpoint.population])
        # From the last to the first: a hall of fame puts newcomers ahead of their equals.
        state.hall_of_fame.update(viable([self._member(member) for member in reversed(checkpoint.hall_of_fame)]))
        random.setstate(checkpoint.rng_state("global"))
        self.search_rng.setstate(checkpoint.rng_state("search"))
        self.sampler.restore(checkpoint.sampler, bank)
        return state

    def _member(self, member: Member) -> Individual:
        if not self.history.knows(member.id):
            raise CheckpointError(f"{member.id} is not in the archive: it is older than the checkpoint; restore both")
        individual = self.history.individual(member.id)
        member.restore_fitness(individual)
        evaluation = self.history.evaluation(member.id)
        if evaluation is not None and evaluation.geomean is None:  # refused by the audit at the end of an earlier part
            set_fitness(individual, 0.0)
        return individual


def newest_checkpoint(run: RunFolder, fingerprint: str, note: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint of a run, after telling of those that were passed over; None where there is none.

    Raises CheckpointError where all are damaged, or it was written under other settings.
    """
    loaded = load_newest(run.checkpoints)
    if loaded is None:
        return None
    for sentence in loaded.skipped:
        note(f"passed over {sentence}")
    if loaded.checkpoint.settings_fingerprint != fingerprint:
        raise CheckpointError(f"{loaded.path}: written under other settings than this run's archive; restore a copy")
    return loaded.checkpoint
