"""Builds what audits wins: for a search, and for `evo verify`."""

from collections.abc import Callable
from dataclasses import replace

from evo.auditing import Auditing, Audits
from evo.choices import Settled
from evo.config import BackendKind, Config
from evo.history import History
from evo.judging import EvaluatesAll
from evo.suites import load_suite_config, to_suite
from evo.workbench import judge_settings
from fitness import worker as workers
from fitness.audit import Auditor, FullSuite
from fitness.evaluator import Evaluator
from fitness.sanitizer import find_sanitizer
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
    if not isinstance(evaluator, Evaluator) or not isinstance(evaluator.worker, workers.Worker):
        return None
    on_gpu = settled.backend is BackendKind.cuda
    return Auditor(
        evaluator,
        evaluator.worker,
        on_gpu=on_gpu,
        sanitizer=find_sanitizer(),
        device_index=config.backend.device,
        full=_full_suite(config, settled) if on_gpu else None,
    )


def _full_suite(config: Config, settled: Settled) -> FullSuite:
    suite = load_suite_config(FULL_SUITE)
    return FullSuite(suite=to_suite(suite), settings=judge_settings(replace(config, suite=suite), settled.backend))
