"""What a page tells of a run, as plain values: the reading fills them, pictures and templates only look at them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from evo.question_records import QuestionRow
from evo.report.diff import Piece
from evo.run_list import RunRow
from fitness.audit_record import Audit
from fitness.evaluation import Environment, ScenarioTiming
from population.individual import SEED
from population.records import Birth, QuestionRecord


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One evaluation, in the order in which they were made."""

    place: int  # the first is 1
    kernel: str
    birth: int
    status: str
    geomean: float | None


@dataclass(frozen=True, kw_only=True)
class Milestone:
    """An evaluation that was better than all before it."""

    place: int
    kernel: str
    geomean: float
    timings: tuple[ScenarioTiming, ...]  # empty where the page has no column for it


@dataclass(frozen=True, kw_only=True)
class Change:
    """One scenario of a kernel beside its first parent's."""

    timing: ScenarioTiming
    parent_speedup: float | None  # None where the parent has none

    @property
    def factor(self) -> float | None:
        """The kernel's speedup / its parent's."""
        return None if self.parent_speedup is None else self.timing.speedup / self.parent_speedup


@dataclass(frozen=True, kw_only=True)
class Detail:
    """What is told of a kernel beyond its line in the list."""

    word: str  # the reply's own on its change; "" where it is not recorded yet
    changes: tuple[Change, ...]
    noise: float  # half the 95 % interval that its own calls give its geomean, as a share
    diff: tuple[Piece, ...] | None  # against its first parent; None where it was left out
    diff_characters: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """A kernel on the champion's line, or a milestone beside it."""

    kernel: str
    evaluation: int | None  # the place of its latest; None where it is not measured
    generation: int
    operator: str
    parents: tuple[str, ...]
    question: QuestionRecord | None  # None for a seed
    geomean: float | None
    gain: float | None  # over its best parent
    detail: Detail | None  # None where the page has no room for it


@dataclass(frozen=True, kw_only=True)
class Account:
    """A run as far as its archive tells."""

    row: RunRow
    measured: tuple[Measured, ...]
    births: tuple[Birth, ...]
    milestones: tuple[Milestone, ...]
    line: tuple[Step, ...]  # from the champion to its seed; empty where nothing passed
    beside: tuple[Step, ...]  # milestones that are not on that line, newest first
    questions: tuple[QuestionRow, ...]
    childless: Mapping[str, int]  # questions that led to no new kernel, by outcome
    spend: Mapping[str, float]
    environments: tuple[Environment, ...]  # of the milestones, each once
    settings: Mapping[str, Any]
    champion_source: str
    audits: Mapping[str, Audit]  # the latest, by kernel
    best_audit: Audit | None  # as the best of its run; None before that

    @property
    def best(self) -> Milestone | None:
        """The champion's evaluation; None where nothing passed."""
        return self.milestones[-1] if self.milestones else None

    @property
    def over_seed(self) -> float | None:
        """The best geomean / that of the best seed; None where none of them passed."""
        seeds = {birth.id for birth in self.births if birth.operator == SEED}
        seed = max((each.geomean or 0.0 for each in self.measured if each.kernel in seeds), default=0.0)
        return self.best.geomean / seed if self.best and seed else None

    @property
    def told(self) -> frozenset[str]:
        """The kernels that the page tells in full, and can lead to."""
        return frozenset(step.kernel for step in (*self.line, *self.beside) if step.detail is not None)

    @property
    def statuses(self) -> dict[str, int]:
        """How many evaluations ended in each status, the most frequent first."""
        counts = Counter(each.status for each in self.measured)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def waiting(self) -> int:
        """Kernels that are not measured yet."""
        return len({birth.id for birth in self.births} - {each.kernel for each in self.measured})

    @property
    def best_so_far(self) -> list[float]:
        """The best geomean after each evaluation; 0.0 until one passed."""
        return list(accumulate((each.geomean or 0.0 for each in self.measured), max))

    @property
    def baseline(self) -> str:
        """The name of what kernels are measured against."""
        return self.environments[-1].baseline if self.environments else str(self.settings.get("baseline", "baseline"))
