"""Auditing a search's wins: the suspicious ones as they come, and the best once the search has come to its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from evo.audits import AUDIT_EVENT, CHAMPION_EVENT, recorded_audit, told
from evo.history import History
from fitness.audit_record import Audit, AuditCheck, after_audit
from fitness.evaluation import Evaluation
from fitness.scenario import Scenario
from fitness.suspicion import suspicions
from population.archive import Archive
from population.atomic_file import strict_json
from population.individual import Individual
from population.records import EventRecord

_THE_BEST = "the best of its run"


@runtime_checkable
class Audits(Protocol):
    """Whoever can look at a candidate again: a device, or what stands for one in a test."""

    def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
        """The checks of a suspicious win, up to the first that fails."""

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        """What a run's best is held to besides."""


@dataclass(frozen=True, kw_only=True)
class Auditing:
    """Decides what is audited, and keeps the outcome. An audit that the archive holds is used, never made again.

    Without an `auditor` only those audits count that the archive holds already.
    """

    auditor: Audits | None
    archive: Archive
    history: History
    scenarios: Sequence[Scenario]
    gain: float  # over the best parent, from which a win is suspicious
    note: Callable[[str], None]

    def judged(self, individual: Individual, evaluation: Evaluation) -> Evaluation:
        """The evaluation, or what it is worth after an audit that failed. Raises EnvironmentFault."""
        dethroned = recorded_audit(self.archive, CHAMPION_EVENT, individual.id)
        if dethroned is not None and dethroned.failed:
            return after_audit(evaluation, dethroned)  # at the end of an earlier part of this run
        parent = max(map(self.history.geomean, individual.parent_ids), default=0.0)
        why = suspicions(evaluation, parent or None, self.gain, self.scenarios)
        if not why:
            return evaluation
        audit = recorded_audit(self.archive, AUDIT_EVENT, individual.id)
        if audit is None and self.auditor is not None:
            self.note(f"auditing {individual.id}: {'; '.join(why)}")
            audit = self._keep(AUDIT_EVENT, individual, why, self.auditor.audit(individual.source, evaluation))
        if audit is None:
            return evaluation
        self.history.add_audit(individual.id, audit)
        return after_audit(evaluation, audit)

    def crown(self) -> str | None:
        """The id of the best individual that no audit refuses, after auditing it; None where nothing passed.

        What fails is out, and the next best is looked at. Raises EnvironmentFault.
        """
        while (best := self._best()) is not None:
            audit = recorded_audit(self.archive, CHAMPION_EVENT, best.id)
            if audit is None and self.auditor is not None:
                audit = self._audit_champion(best, self.auditor)
            if audit is None or not audit.failed:
                return best.id
            self.history.add_evaluation(best.id, after_audit(self._evaluation(best), audit))
        return None

    def _audit_champion(self, best: Individual, auditor: Audits) -> Audit | None:
        """All checks of a suspicious win, unless they were made before, and what only the best is held to."""
        self.note(f"auditing {best.id}: {_THE_BEST}")
        earlier = recorded_audit(self.archive, AUDIT_EVENT, best.id)
        checks = earlier.checks if earlier else auditor.audit(best.source, self._evaluation(best))
        if not checks or not Audit(why=(), checks=checks).failed:
            checks = (*checks, *auditor.audit_champion(best.source))
        return self._keep(CHAMPION_EVENT, best, (*(earlier.why if earlier else ()), _THE_BEST), checks)

    def _keep(
        self, kind: str, individual: Individual, why: Sequence[str], checks: tuple[AuditCheck, ...]
    ) -> Audit | None:
        if not checks:
            return None
        audit = Audit(why=tuple(why), checks=checks)
        self.archive.record_event(EventRecord(kind=kind, key=individual.id, record=strict_json(audit.to_json())))
        self.note(f"the audit of {individual.id}: {told(audit)}")
        return audit

    def _best(self) -> Individual | None:
        """The individual with the greatest geometric mean, the earliest judged of equals."""
        geomeans = self.history.geomeans()
        name = max(geomeans, key=lambda each: geomeans[each], default=None)
        return None if name is None or geomeans[name] == 0.0 else self.history.individual(name)

    def _evaluation(self, individual: Individual) -> Evaluation:
        evaluation = self.history.evaluation(individual.id)
        if evaluation is None:
            raise KeyError(individual.id)
        return evaluation
