"""Builds what audits wins: for a search, and for `evo verify`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from evo.auditing import Auditing, Audits
from evo.choices import Settled
from evo.config import BackendKind, Config
from evo.history import History
from evo.judging import EvaluatesAll
from evo.suites import load_suite_config, to_suite
from evo.workbench import judge_settings
from fitness.audit import Auditor, AuditWorker, FullSuite, SanitizesKernels
from fitness.audit_record import AuditCheck
from fitness.evaluation import Evaluation
from fitness.evaluator import Evaluator, Measurer
from fitness.patient_audit import PatientAuditor, failed_by_lost_workers
from fitness.pool import PooledEvaluator
from fitness.sanitizer import find_sanitizer
from fitness.worker_pool import TwoWorkersLost
from population.archive import Archive

FULL_SUITE = "full182"  # what a run's best is held to besides


def build_auditing(
    config: Config, settled: Settled, evaluator: EvaluatesAll, archive: Archive, history: History,
    note: Callable[[str], None],
) -> Auditing:  # fmt: skip
    """The auditing of a search's wins. Where it is switched off, audits that the archive holds still count."""
    return Auditing(
        auditor=None if config.audit is False else build_auditor(config, settled, evaluator),
        archive=archive,
        history=history,
        scenarios=settled.suite.scenarios,
        gain=config.questions.big_win,
        note=note,
    )


def build_auditor(config: Config, settled: Settled, evaluator: EvaluatesAll) -> Audits | None:
    """What looks again at wins that `evaluator` reports; None where it cannot run a candidate again."""
    if isinstance(evaluator, Audits):
        return evaluator
    if isinstance(evaluator, PooledEvaluator):
        pooled = evaluator
        return PooledAuditor(pooled, lambda worker: _auditor(config, settled, pooled.evaluator.beside(worker)))
    auditor = _auditor(config, settled, evaluator) if isinstance(evaluator, Evaluator) else None
    return None if auditor is None else PatientAuditor(auditor)


@dataclass(frozen=True)
class PooledAuditor:
    """Audits on whichever worker of a pool is free next: nothing else is measured on its device meanwhile.

    A candidate that ends two workers in its audit fails it.
    """

    pooled: PooledEvaluator
    auditor_on: Callable[[Measurer], Audits | None]

    def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
        """See Audits."""
        return self._by_a_worker(lambda auditor: auditor.audit(source, evaluation))

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        """See Audits."""
        return self._by_a_worker(lambda auditor: auditor.audit_champion(source))

    def _by_a_worker(self, audit: Callable[[Audits], tuple[AuditCheck, ...]]) -> tuple[AuditCheck, ...]:
        def turn(worker: Measurer) -> tuple[AuditCheck, ...]:
            auditor = self.auditor_on(worker)
            return () if auditor is None else audit(auditor)

        try:
            return self.pooled.workers.submit(turn, first=True).result()
        except TwoWorkersLost as lost:
            return failed_by_lost_workers([lost])


def _auditor(config: Config, settled: Settled, evaluator: Evaluator) -> Audits | None:
    worker = evaluator.worker
    if not isinstance(worker, AuditWorker):
        return None
    on_gpu = settled.backend is BackendKind.cuda
    return Auditor(
        evaluator,
        worker,
        on_gpu=on_gpu,
        sanitizer=worker if isinstance(worker, SanitizesKernels) else find_sanitizer(),  # where the worker's GPU is
        device_index=worker.device_index,
        full=_full_suite(config, settled) if on_gpu else None,
    )


def _full_suite(config: Config, settled: Settled) -> FullSuite:
    suite = load_suite_config(FULL_SUITE)
    return FullSuite(suite=to_suite(suite), settings=judge_settings(replace(config, suite=suite), settled.backend))
