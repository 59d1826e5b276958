"""What was tried so far and what came of it: the memory that prompts and the sampler's moments are made from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, Protocol

from evo.noise import noise
from fitness.audit_record import Audit
from fitness.evaluation import Evaluation
from population.individual import SEED, Individual


class Outcome(StrEnum):
    """What a question led to, before any measuring."""

    CHILD = "child"  # a new candidate
    DUPLICATE = "duplicate"  # the text of an individual that was judged before
    NO_CHANGE = "no_change"  # the parent again
    UNREADABLE = "unreadable"  # the reply could not be read, twice
    UNANSWERED = "unanswered"  # the answerer failed for this one


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One question put to one or two parents."""

    number: int
    generation: int
    operator: str
    parent_ids: tuple[str, ...]
    question_id: str
    layer: str
    moment: str
    style: str
    hint: str  # the words that were asked
    outcome: Outcome
    detail: str  # why there is no child; else the reply's own word on its change
    claim: str  # what the reply declared: limit, done, or nothing
    child_id: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives the equal record back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Attempt":
        """The attempt that `to_json` wrote."""
        fields = {**record, "parent_ids": tuple(record["parent_ids"]), "outcome": Outcome(record["outcome"])}
        return cls(**fields)


class Past(Protocol):
    """What earlier parts of a run left behind; `ArchivedPast` reads it from the archive."""

    @property
    def geomeans(self) -> Mapping[str, float]:
        """The geometric mean of each that was judged, in that order; 0.0 where it failed."""

    @property
    def statuses(self) -> Mapping[str, str]:
        """How each came out, in that order."""

    @property
    def judged_layers(self) -> Mapping[str, str]:
        """The layer of the question behind each that was judged and is no seed."""

    def individual(self, individual_id: str) -> Individual | None:
        """The individual of an id, or None."""

    def evaluation(self, individual_id: str) -> Evaluation | None:
        """What was measured of an individual, or None."""

    def audit(self, individual_id: str) -> Audit | None:
        """What the audit of an individual found, or None."""

    def seeds(self) -> list[Individual]:
        """The individuals that the run began with."""

    def attempts_on(self, parent_id: str) -> Sequence[Attempt]:
        """The attempts on a parent, by their numbers."""

    def attempt_of(self, child_id: str) -> Attempt | None:
        """The attempt that led to an individual, or None."""

    def attempts_of(self, generation: int) -> Sequence[Attempt]:
        """The attempts of a generation, by their numbers."""

    def evaluations(self) -> Iterable[tuple[str, Evaluation]]:
        """All evaluations, with their individuals' ids."""


class History:
    """Individuals, their evaluations and the attempts that led to them, in the order of their numbers.

    What was remembered here comes after what `recall` has given.
    """

    def __init__(self) -> None:
        self._past: Past | None = None
        self._individuals: dict[str, Individual] = {}
        self._evaluations: dict[str, Evaluation] = {}
        self._audits: dict[str, Audit] = {}
        self._noise: dict[str, float] = {}
        self._attempts: list[Attempt] = []
        self._by_parent: dict[str, list[Attempt]] = {}
        self._by_child: dict[str, Attempt] = {}

    def recall(self, past: Past) -> None:
        """Know of earlier parts of the run, too."""
        self._past = past

    def add_individual(self, individual: Individual) -> None:
        """Remember a candidate, judged or not yet."""
        self._individuals[individual.id] = individual

    def add_attempt(self, attempt: Attempt) -> None:
        """Remember an attempt; they come in the order of their numbers."""
        self._attempts.append(attempt)
        if attempt.child_id is not None and attempt.outcome is Outcome.CHILD:
            self._by_child[attempt.child_id] = attempt
        for parent_id in attempt.parent_ids:
            self._by_parent.setdefault(parent_id, []).append(attempt)

    def add_evaluation(self, individual_id: str, evaluation: Evaluation) -> None:
        """Remember what was measured of an individual."""
        self._evaluations[individual_id] = evaluation
        self._noise[individual_id] = noise(evaluation)

    def add_audit(self, individual_id: str, audit: Audit) -> None:
        """Remember what an audit found. (One that failed also makes another evaluation: see evo/auditing.py.)"""
        self._audits[individual_id] = audit

    def audit(self, individual_id: str) -> Audit | None:
        """What the audit of an individual found, or None."""
        found = self._audits.get(individual_id)
        return self._past.audit(individual_id) if found is None and self._past else found

    def knows(self, individual_id: str) -> bool:
        """Whether a candidate of this very text was there before."""
        return self._find(individual_id) is not None

    def seeds(self) -> list[Individual]:
        """The individuals that the run began with, in the order in which they were named."""
        past = self._past.seeds() if self._past else []
        seeds = {each.id: each for each in (*past, *self._individuals.values()) if each.operator == SEED}.values()
        return sorted(seeds, key=lambda seed: seed.birth, reverse=True)

    def individual(self, individual_id: str) -> Individual:
        """The individual of an id. Raises KeyError."""
        found = self._find(individual_id)
        if found is None:
            raise KeyError(individual_id)
        return found

    def evaluation(self, individual_id: str) -> Evaluation | None:
        """What was measured of an individual, or None."""
        found = self._evaluations.get(individual_id)
        return self._past.evaluation(individual_id) if found is None and self._past else found

    def evaluations(self) -> list[Evaluation]:
        """All that was measured, in the order in which it was remembered. What is recalled for it stays in memory."""
        if self._past is not None and self._past.geomeans.keys() - self._evaluations.keys():
            self._evaluations = dict(self._past.evaluations()) | self._evaluations
        return list(self._evaluations.values())

    def statuses(self) -> list[str]:
        """How each that was measured came out, in the same order."""
        past = self._past.statuses if self._past else {}
        return list({**past, **{name: str(each.status) for name, each in self._evaluations.items()}}.values())

    def geomeans(self) -> Mapping[str, float]:
        """The geometric mean of all that was measured, by id, in the order in which it was remembered; 0.0 as below."""
        past = self._past.geomeans if self._past else {}
        return {**past, **{name: evaluation.geomean or 0.0 for name, evaluation in self._evaluations.items()}}

    def geomean(self, individual_id: str) -> float:
        """An individual's geometric mean speedup; 0.0 where it failed or was not judged."""
        evaluation = self._evaluations.get(individual_id)
        if evaluation is not None:
            return evaluation.geomean or 0.0
        return self._past.geomeans.get(individual_id, 0.0) if self._past else 0.0

    def noise(self, individual_id: str) -> float:
        """How far an individual's geomean may be off by measuring alone, as a share of it; 0.0 where it has none."""
        if individual_id not in self._noise:
            evaluation = self.evaluation(individual_id)
            return 0.0 if evaluation is None else noise(evaluation)
        return self._noise[individual_id]

    def judged_layers(self) -> list[str]:
        """The layer of the question behind each candidate that was judged; seeds have none."""
        recent = {child: attempt.layer for child, attempt in self._by_child.items() if self.evaluation(child)}
        return list({**(self._past.judged_layers if self._past else {}), **recent}.values())

    def speedups(self, individual_id: str) -> Mapping[str, float]:
        """Speedup by scenario, in the suite's order; empty unless PASSED."""
        evaluation = self.evaluation(individual_id)
        return {} if evaluation is None else evaluation.speedups

    def best_parent(self, attempt: Attempt) -> str:
        """The id of the parent that gains are told against: the fastest, the first of equals."""
        return max(attempt.parent_ids, key=self.geomean)

    def gain(self, attempt: Attempt) -> float | None:
        """The child's geomean over its best parent's; None without a child that passed."""
        if attempt.child_id is None:
            return None
        child, parent = self.geomean(attempt.child_id), self.geomean(self.best_parent(attempt))
        return child / parent if child > 0.0 and parent > 0.0 else None

    def attempt_of(self, individual_id: str) -> Attempt | None:
        """The attempt that made an individual; None for a seed."""
        found = self._by_child.get(individual_id)
        if found is not None or self._past is None:
            return found
        return self._past.attempt_of(individual_id)

    def attempts_of(self, generation: int) -> list[Attempt]:
        """The attempts of one generation, oldest first."""
        newest_first = takewhile(lambda attempt: attempt.generation >= generation, reversed(self._attempts))
        recent = [attempt for attempt in newest_first if attempt.generation == generation][::-1]
        return [*(self._past.attempts_of(generation) if self._past else ()), *recent]

    def line(self, individual_id: str) -> list[Individual]:
        """The individual and its first parents back to the seed, the individual first."""
        line = [self.individual(individual_id)]
        while line[-1].parent_ids:
            line.append(self.individual(line[-1].parent_ids[0]))
        return line

    def lineage_attempts(self, individual_id: str) -> list[Attempt]:
        """The attempts on an individual and on its line of first parents, oldest first."""
        found = {
            attempt.number: attempt
            for ancestor in self.line(individual_id)
            for attempt in self._attempts_on(ancestor.id)
        }
        return [found[number] for number in sorted(found)]

    def _find(self, individual_id: str) -> Individual | None:
        found = self._individuals.get(individual_id)
        return self._past.individual(individual_id) if found is None and self._past else found

    def _attempts_on(self, parent_id: str) -> list[Attempt]:
        past = self._past.attempts_on(parent_id) if self._past else ()
        return [*past, *self._by_parent.get(parent_id, [])]
