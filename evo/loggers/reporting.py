"""What is told of a run, and to whom: the configured logger, once for each evaluation."""

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from evo.config import Config, LoggerKind
from evo.history import History
from evo.loggers.address import without_userinfo
from evo.loggers.logger import Forgiving, Logger, Silent
from evo.run_settings import flatten_settings
from evo.settings import ConfigError
from evo.tracking import Tracker
from fitness.evaluation import Evaluation, Status
from population.archive import Archive
from population.atomic_file import parse_json, strict_json
from population.records import EventRecord
from population.run_folder import RunFolder

MLFLOW_EVENT = "mlflow_run"

_PACKAGES = {LoggerKind.tensorboard: "tensorboard", LoggerKind.mlflow: "mlflow-skinny"}  # of the module `kind`


@dataclass(frozen=True, kw_only=True)
class Report:
    """Tells a logger of evaluations that no earlier part of the run told it of."""

    logger: Logger
    told: int  # evaluations before this part

    def judged(self, evaluation: Evaluation, history: History, tracker: Tracker) -> None:
        """One more evaluation, which the history and the tracker know of already."""
        if isinstance(self.logger, Silent):
            return
        if tracker.evaluations > self.told:
            self.logger.log(figures_of(evaluation, history, tracker), tracker.evaluations)


NO_REPORT = Report(logger=Silent(), told=0)


def figures_of(evaluation: Evaluation, history: History, tracker: Tracker) -> dict[str, float]:
    """The figures after an evaluation; counts are of the whole run. A geomean is there only where something passed."""
    figures: dict[str, float] = {"evaluations": tracker.evaluations, "spend_usd": tracker.spend_usd()}
    if tracker.best_geomean > 0.0:
        figures["geomean/best"] = tracker.best_geomean
    if evaluation.geomean is not None:
        figures["geomean/candidate"] = evaluation.geomean
    failures = Counter(f"failures/{status}" for status in history.statuses() if status != Status.PASSED)
    questions = Counter(f"questions/{layer}" for layer in history.judged_layers())
    return {**figures, **failures, **questions}


def require_logger(config: Config, find: Callable[[str], object] = importlib.util.find_spec) -> None:
    """Raise ConfigError where the configured logger's package is not installed, before a run begins.

    `find` gives None for a module that is not there.
    """
    kind = config.logger.kind
    if kind in _PACKAGES and find(kind.value) is None:
        raise ConfigError(
            f"logger={kind.value}: {_PACKAGES[kind]} is not installed; install it with: pip install "
            f"{_PACKAGES[kind]}, or leave the logger out"
        )


@contextmanager
def open_report(config: Config, run: RunFolder, archive: Archive, warn: Callable[[str], None]) -> Iterator[Report]:
    """The report to the configured logger, closed afterwards. Raises ConfigError where its package is missing."""
    require_logger(config)
    if config.logger.kind is LoggerKind.none:
        yield NO_REPORT
        return
    logger = Forgiving(config.logger.kind.value, lambda: opened(config, run, archive), warn)
    try:
        yield Report(logger=logger, told=archive.evaluation_count())
    finally:
        logger.close()


def _known_run(archive: Archive, address: str) -> str | None:
    event = archive.event(MLFLOW_EVENT, address)
    return None if event is None else str(parse_json(event.record))


def _text(value: object) -> str:
    return value if isinstance(value, str) else strict_json(value)


def _mlflow() -> Callable[..., Logger]:
    from evo.loggers.mlflow import Mlflow

    return Mlflow


def opened(
    config: Config, run: RunFolder, archive: Archive, mlflow: Callable[[], Callable[..., Logger]] = _mlflow
) -> Logger:
    """The configured logger, with the settings as its parameters. The packages take seconds to import.

    A secret in MLflow's address reaches the maker that `mlflow` gives, and neither a parameter nor the archive.
    """
    address = without_userinfo(config.logger.tracking_uri)
    flat = flatten_settings(config) | {"logger.tracking_uri": address}
    settings = {key: _text(value) for key, value in flat.items()}
    if config.logger.kind is LoggerKind.tensorboard:
        from evo.loggers.tensorboard import TensorBoard

        return TensorBoard(run.path / "tensorboard", settings)
    return mlflow()(
        tracking_uri=config.logger.tracking_uri,
        experiment=config.logger.experiment,
        name=run.path.name,
        settings=settings,
        known=_known_run(archive, address),
        remember=lambda name: archive.record_event(
            EventRecord(kind=MLFLOW_EVENT, key=address, record=strict_json(name))
        ),
    )
