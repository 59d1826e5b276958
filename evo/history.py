"""What was tried so far and what came of it: the memory that prompts and the sampler's moments are made from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any

from evo.noise import noise
from fitness.audit_record import Audit
from fitness.evaluation import Evaluation
from population.individual import Individual


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


class History:
    """Individuals, their evaluations and the attempts that led to them, in the order of their numbers."""

    def __init__(self) -> None:
        self._individuals: dict[str, Individual] = {}
        self._evaluations: dict[str, Evaluation] = {}
        self._audits: dict[str, Audit] = {}
        self._noise: dict[str, float] = {}
        self._attempts: list[Attempt] = []
        self._by_parent: dict[str, list[Attempt]] = {}
        self._by_child: dict[str, Attempt] = {}

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
        return self._audits.get(individual_id)

    def knows(self, individual_id: str) -> bool:
        """Whether a candidate of this very text was there before."""
        return individual_id in self._individuals

    def seeds(self) -> list[Individual]:
        """The individuals without parents, in the order in which they were named."""
        seeds = [each for each in self._individuals.values() if each.birth < 0]
        return sorted(seeds, key=lambda seed: seed.birth, reverse=True)

    def individual(self, individual_id: str) -> Individual:
        """The individual of an id. Raises KeyError."""
        return self._individuals[individual_id]

    def evaluation(self, individual_id: str) -> Evaluation | None:
        """What was measured of an individual, or None."""
        return self._evaluations.get(individual_id)

    def evaluations(self) -> list[Evaluation]:
        """All that was measured, in the order in which it was remembered."""
        return list(self._evaluations.values())

    def judged_ids(self) -> list[str]:
        """The ids of all that was measured, in the order in which it was remembered."""
        return list(self._evaluations)

    def geomean(self, individual_id: str) -> float:
        """An individual's geometric mean speedup; 0.0 where it failed or was not judged."""
        evaluation = self._evaluations.get(individual_id)
        return 0.0 if evaluation is None or evaluation.geomean is None else evaluation.geomean

    def noise(self, individual_id: str) -> float:
        """How far an individual's geomean may be off by measuring alone, as a share of it; 0.0 where it has none."""
        return self._noise.get(individual_id, 0.0)

    def judged_layers(self) -> list[str]:
        """The layer of the question behind each candidate that was judged; seeds have none."""
        return [attempt.layer for child, attempt in self._by_child.items() if child in self._evaluations]

    def speedups(self, individual_id: str) -> Mapping[str, float]:
        """Speedup by scenario, in the suite's order; empty unless PASSED."""
        evaluation = self._evaluations.get(individual_id)
        return {} if evaluation is None else evaluation.speedups

    def gain(self, attempt: Attempt) -> float | None:
        """The child's geomean over its best parent's; None without a child that passed."""
        if attempt.child_id is None:
            return None
        child, parent = self.geomean(attempt.child_id), max(map(self.geomean, attempt.parent_ids))
        return child / parent if child > 0.0 and parent > 0.0 else None

    def attempt_of(self, individual_id: str) -> Attempt | None:
        """The attempt that made an individual; None for a seed."""
        return self._by_child.get(individual_id)

    def attempts_of(self, generation: int) -> list[Attempt]:
        """The attempts of one generation, oldest first."""
        newest_first = takewhile(lambda attempt: attempt.generation >= generation, reversed(self._attempts))
        return [attempt for attempt in newest_first if attempt.generation == generation][::-1]

    def line(self, individual_id: str) -> list[Individual]:
        """The individual and its first parents back to the seed, the individual first."""
        line = [self._individuals[individual_id]]
        while line[-1].parent_ids:
            line.append(self._individuals[line[-1].parent_ids[0]])
        return line

    def lineage_attempts(self, individual_id: str) -> list[Attempt]:
        """The attempts on an individual and on its line of first parents, oldest first."""
        found = {
            attempt.number: attempt
            for ancestor in self.line(individual_id)
            for attempt in self._by_parent.get(ancestor.id, [])
        }
        return [found[number] for number in sorted(found)]
