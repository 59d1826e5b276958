"""What a run remembers of its earlier parts, read from its archive where it is asked for, and not before.

Of a hundred thousand candidates a generation looks at the lines of a few; reading all of them would take minutes.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache

from evo.attempt_events import ATTEMPT_EVENT, latest_attempts, recorded_attempts
from evo.audits import AUDIT_EVENT, CHAMPION_EVENT, judged_evaluations, judged_scores, recorded_audit, recorded_audits
from evo.history import Attempt, Outcome
from fitness.audit_record import Audit, after_audit
from fitness.evaluation import Evaluation
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json
from population.individual import Individual
from population.records import Score

_INDIVIDUALS = 1024  # kept in memory, of some 30 kB each
_EVALUATIONS = 512  # of some 50 kB each
_ATTEMPTS = 4096  # lists of them


class ArchivedPast:
    """The individuals born before a number, what was measured of them, and the attempts below that number.

    Younger rows belong to a generation that is to be made again, and so do those of the numbers `without`: what a
    steady search had under way, and what came by hand since.
    """

    def __init__(self, archive: ArchiveReader, *, before: int, without: frozenset[int] = frozenset()) -> None:
        self._archive = archive
        self._before = before
        self._without = without
        self._individual = lru_cache(_INDIVIDUALS)(self._read_individual)
        self._evaluation = lru_cache(_EVALUATIONS)(self._read_evaluation)
        self._attempts_on = lru_cache(_ATTEMPTS)(self._read_attempts_on)

    def individual(self, individual_id: str) -> Individual | None:
        """The individual of an id; None where it is not among them."""
        return self._individual(individual_id)

    def evaluation(self, individual_id: str) -> Evaluation | None:
        """What was measured of an individual, in the light of its audits; None where it is not among them."""
        return self._evaluation(individual_id)

    def audit(self, individual_id: str) -> Audit | None:
        """What the audit of a suspicious win found, or None."""
        return recorded_audit(self._archive, AUDIT_EVENT, individual_id) if self.individual(individual_id) else None

    @cached_property
    def geomeans(self) -> dict[str, float]:
        """The geometric mean of each that was judged, in the order in which they were; 0.0 where it failed."""
        failed = {name for name, audit in recorded_audits(self._archive).items() if audit.failed}
        scores = self._archive.geomeans(before_birth=self._before)
        open_ = self._archive.ids_born(self._without)
        judged = ((name, geomean) for name, geomean in scores if name not in open_)
        return {name: 0.0 if geomean is None or name in failed else geomean for name, geomean in judged}

    @cached_property
    def statuses(self) -> dict[str, str]:
        """How each came out, in the same order; this reads more, and only loggers ask for it."""
        return {each.individual_id: each.status for each in judged_scores(self._archive) if self._judged(each)}

    @cached_property
    def judged_layers(self) -> dict[str, str]:
        """The layer of the question behind each that was judged and is no seed; this reads all attempts."""
        made = (each for each in recorded_attempts(self._archive) if self._is_past(each.number))
        children = {str(each.child_id): each.layer for each in made if each.outcome is Outcome.CHILD}
        return {name: layer for name, layer in children.items() if name in self.geomeans}

    def seeds(self) -> list[Individual]:
        """The individuals that the run began with."""
        found = (self.individual(name) for name in self._archive.seed_ids())
        return [seed for seed in found if seed is not None]

    def attempts_on(self, parent_id: str) -> tuple[Attempt, ...]:
        """The attempts on a parent, by their numbers."""
        return self._attempts_on(parent_id)

    def attempt_of(self, child_id: str) -> Attempt | None:
        """The attempt that made an individual; None for a seed. (Others may have led to its text again.)"""
        found = self._latest(self._archive.records_where(ATTEMPT_EVENT, "child_id", child_id))
        return next((attempt for attempt in reversed(found) if attempt.outcome is Outcome.CHILD), None)

    def attempts_of(self, generation: int) -> tuple[Attempt, ...]:
        """The attempts of a generation, by their numbers."""
        return self._latest(self._archive.records_where(ATTEMPT_EVENT, "generation", generation))

    def evaluations(self) -> Iterator[tuple[str, Evaluation]]:
        """All of them in full, which takes long where there are many."""
        return ((name, each) for name, each in judged_evaluations(self._archive) if name in self.geomeans)

    def _judged(self, score: Score) -> bool:
        return score.individual_id in self.geomeans

    def _read_individual(self, individual_id: str) -> Individual | None:
        found = self._archive.find_individual(individual_id)
        return found if found is not None and self._is_past(found.birth) else None

    def _read_evaluation(self, individual_id: str) -> Evaluation | None:
        recorded = self._archive.evaluation_json(individual_id) if self.individual(individual_id) else None
        if recorded is None:
            return None
        audit = recorded_audit(self._archive, CHAMPION_EVENT, individual_id) or self.audit(individual_id)
        return after_audit(Evaluation.from_json(parse_json(recorded)), audit)

    def _read_attempts_on(self, parent_id: str) -> tuple[Attempt, ...]:
        return self._latest(
            [
                *self._archive.records_where(ATTEMPT_EVENT, "parent_ids[0]", parent_id),
                *self._archive.records_where(ATTEMPT_EVENT, "parent_ids[1]", parent_id),
            ]
        )

    def _latest(self, records: list[str]) -> tuple[Attempt, ...]:
        """The attempts of these events that no later one of the same number replaced."""
        found = {attempt.number: attempt for attempt in latest_attempts(records) if self._is_past(attempt.number)}
        return tuple(found[number] for number in sorted(found) if self._stands(found[number]))

    def _is_past(self, number: int) -> bool:
        return number < self._before and number not in self._without

    @cached_property
    def _asked_again(self) -> frozenset[int]:
        return self._archive.repeated(ATTEMPT_EVENT, "number")

    def _stands(self, attempt: Attempt) -> bool:
        """A generation that had to be made again is there twice, and may have gone otherwise: the later one counts."""
        if attempt.number not in self._asked_again:
            return True
        all_of_number = self._archive.records_where(ATTEMPT_EVENT, "number", attempt.number)
        return latest_attempts(all_of_number)[-1] == attempt
