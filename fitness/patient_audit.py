"""Audits that a candidate cannot end by ending workers: it would end its run, and each time that the run is resumed."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from fitness.audit_record import AuditCheck, Finding
from fitness.evaluation import Evaluation
from fitness.faults import DoubtfulFault, EnvironmentFault
from fitness.measure import ended_two_workers

logger = logging.getLogger(__name__)

Checks = tuple[AuditCheck, ...]


class Audits(Protocol):
    """What audits; `Auditor` does."""

    def audit(self, source: str, evaluation: Evaluation) -> Checks:
        """The checks up to and with the first that fails. Raises EnvironmentFault for what is not the candidate's."""

    def audit_champion(self, source: str) -> Checks:
        """What a run's best is held to besides. Raises EnvironmentFault."""


class PatientAuditor:
    """The same auditor, which tries again after a fault that may be the candidate's doing; the second is held so.

    For one worker of one's own. A pool tries again by itself, and knows whether a worker was well in between.
    """

    def __init__(self, auditor: Audits) -> None:
        self._auditor = auditor

    def audit(self, source: str, evaluation: Evaluation) -> Checks:
        """See Audits."""
        return _patiently(lambda: self._auditor.audit(source, evaluation))

    def audit_champion(self, source: str) -> Checks:
        """See Audits."""
        return _patiently(lambda: self._auditor.audit_champion(source))


def failed_by_lost_workers(faults: Sequence[EnvironmentFault]) -> Checks:
    """The audit of a candidate that ended two workers in it."""
    return (AuditCheck(name="workers", finding=Finding.FAILED, detail=ended_two_workers(faults).reason),)


def _patiently(audit: Callable[[], Checks]) -> Checks:
    try:
        return audit()
    except DoubtfulFault as first:
        logger.warning("auditing once more, for the worker failed: %s", first)
        try:
            return audit()
        except DoubtfulFault as second:
            return failed_by_lost_workers((first, second))
