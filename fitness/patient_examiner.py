"""Examinations that are made once more after a fault that may be the candidate's doing: none is to end a run by it."""

import logging
from typing import Protocol

from fitness.examination import Examination, Examined
from fitness.faults import DoubtfulFault
from fitness.measure import ended_two_workers

logger = logging.getLogger(__name__)


class Examiner(Protocol):
    """What examines a compiled candidate."""

    def examine(self, job: Examination) -> Examined:
        """What came of the job, up to the candidate's first fault. Raises EnvironmentFault for any other."""


class PatientExaminer:
    """An examiner by which a second doubtful fault in a row is the candidate's, as it is where it is measured."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner

    def examine(self, job: Examination) -> Examined:
        """What came of the job. Raises EnvironmentFault for what no candidate can have done."""
        try:
            return self._examiner.examine(job)
        except DoubtfulFault as first:
            logger.warning("examining once more, for the worker failed: %s", first)
            try:
                return self._examiner.examine(job)
            except DoubtfulFault as second:
                return Examined(scaled_ms={}, fault=ended_two_workers((first, second)).reason)
