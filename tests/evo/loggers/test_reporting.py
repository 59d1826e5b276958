"""What a logger is told, and what becomes of a run whose logger fails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_records import attempt, failed, individual, known, passed
from small_search import small_config

from evo.config import LoggerConfig, LoggerKind
from evo.history import History
from evo.loggers.logger import Forgiving
from evo.loggers.reporting import MLFLOW_EVENT, Report, figures_of, opened, require_logger
from evo.settings import ConfigError
from evo.stop import Interrupted
from evo.tracking import Tracker
from fitness.evaluation import Status
from population.archive import create_archive
from population.records import SpendRecord
from population.run_folder import create_run_folder


class Told:
    """A logger that remembers, and fails from some step on."""

    def __init__(self, *, fails_from: int = 99, with_error: Exception | None = None) -> None:
        self.steps: list[tuple[int, Mapping[str, float]]] = []
        self.closed = 0
        self._fails_from = fails_from
        self._error = with_error or OSError("no room\non the disk")

    def log(self, figures: Mapping[str, float], step: int) -> None:
        if step >= self._fails_from:
            raise self._error
        self.steps.append((step, figures))

    def close(self) -> None:
        self.closed += 1


def test_the_figures_of_a_run(tmp_path: Path) -> None:
    history = History()
    seed = known(history, individual("seed", 0), passed("seed", {"only": 1.0}))
    with create_archive(create_run_folder(tmp_path, "run")) as archive:
        tracker = Tracker(archive=archive, earlier_s=0.0)
        report = Report(logger=(told := Told()), told=0)
        for number, (text, evaluation) in enumerate([
            ("wrong", failed("wrong", Status.INCORRECT, "o differs")), ("better", passed("better", {"only": 1.5})),
            ("broken", failed("broken", Status.COMPILE_ERROR, "no")), ("worse", passed("worse", {"only": 0.5})),
        ]):  # fmt: skip
            child = known(history, individual(text, number, seed), evaluation)
            history.add_attempt(attempt(number, (seed,), child, layer=("memory", "launch")[number % 2]))
            tracker.judged(evaluation)
            archive.record_spend(SpendRecord(key=f"call {number}", kind="cost_usd", amount=0.25))
            report.judged(evaluation, history, tracker)
    assert told.steps == [
        (1, {"evaluations": 1, "spend_usd": 0.25, "failures/INCORRECT": 1, "questions/memory": 1}),
        (2, {
            "evaluations": 2, "spend_usd": 0.5, "geomean/best": 1.5, "geomean/candidate": 1.5, "failures/INCORRECT": 1,
            "questions/memory": 1, "questions/launch": 1,
        }),
        (3, {
            "evaluations": 3, "spend_usd": 0.75, "geomean/best": 1.5, "failures/INCORRECT": 1,
            "failures/COMPILE_ERROR": 1, "questions/memory": 2, "questions/launch": 1,
        }),
        (4, {
            "evaluations": 4, "spend_usd": 1.0, "geomean/best": 1.5, "geomean/candidate": 0.5, "failures/INCORRECT": 1,
            "failures/COMPILE_ERROR": 1, "questions/memory": 2, "questions/launch": 2,
        }),
    ]  # fmt: skip


def test_what_an_earlier_part_told_is_not_told_again(tmp_path: Path) -> None:
    evaluation = passed("seed", {"only": 1.0})
    with create_archive(create_run_folder(tmp_path, "run")) as archive:
        tracker = Tracker(archive=archive, earlier_s=0.0)
        report = Report(logger=(told := Told()), told=2)
        for _ in range(3):
            tracker.judged(evaluation)
            report.judged(evaluation, History(), tracker)
        assert [step for step, _ in told.steps] == [3]
        assert figures_of(evaluation, History(), tracker)["evaluations"] == 3


def test_a_logger_that_fails_is_given_up_with_one_warning() -> None:
    warned: list[str] = []
    told = Told(fails_from=2)
    forgiving = Forgiving("mlflow", lambda: told, warned.append)
    for step in range(1, 5):
        forgiving.log({"evaluations": step}, step)
    forgiving.close()
    assert told.steps == [(1, {"evaluations": 1})]
    assert told.closed == 0
    assert warned == ["logger=mlflow failed, and the run goes on without it: OSError: no room"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("It is in maintenance mode. Migrate by mlflow migrate. See the documentation.", "It is in maintenance mode"),
        ("version 1.2.3 of it is too old", "version 1.2.3 of it is too old"),
        ("x" * 201, "x" * 199 + "…"),
        ("x" * 200, "x" * 200),
        ("", ""),
    ],
)
def test_of_a_long_story_the_first_sentence_is_told(error: str, said: str) -> None:
    warned: list[str] = []
    Forgiving("mlflow", lambda: Told(fails_from=1, with_error=OSError(error)), warned.append).log({}, 1)
    assert warned == [f"logger=mlflow failed, and the run goes on without it: OSError: {said}"]


def test_a_logger_that_cannot_be_opened_is_given_up_too() -> None:
    def open_logger() -> Told:
        raise ConnectionError("nobody there")

    warned: list[str] = []
    forgiving = Forgiving("mlflow", open_logger, warned.append)
    forgiving.log({}, 1)
    assert warned == ["logger=mlflow failed, and the run goes on without it: ConnectionError: nobody there"]


def test_a_secret_in_the_address_is_in_no_event_and_no_parameter(tmp_path: Path) -> None:
    made: list[Mapping[str, Any]] = []

    def begin(**options: Any) -> Told:
        made.append(options)
        if options["known"] is None:
            options["remember"]("run 7")
        return Told()

    config = small_config()
    folder = create_run_folder(tmp_path, "run")
    with create_archive(folder) as archive:
        for address in ("https://me:s3cret@ml.example", "https://me:another@ml.example", "https://elsewhere.example"):
            config.logger = LoggerConfig(kind=LoggerKind.mlflow, tracking_uri=address)
            opened(config, folder, archive, lambda: begin)
        events = [(event.kind, event.key, event.record) for event in archive.events()]
    assert [each["known"] for each in made] == [None, "run 7", None]
    assert made[0]["tracking_uri"] == "https://me:s3cret@ml.example"
    assert made[0]["settings"]["logger.tracking_uri"] == "https://ml.example"
    assert "s3cret" not in "".join(made[0]["settings"].values())
    assert events == [
        (MLFLOW_EVENT, "https://ml.example", '"run 7"'), (MLFLOW_EVENT, "https://elsewhere.example", '"run 7"'),
    ]  # fmt: skip


def test_a_signal_that_strikes_in_a_logger_ends_the_run() -> None:
    told = Told(fails_from=1, with_error=Interrupted("SIGTERM", exit_code=143))
    with pytest.raises(Interrupted, match="interrupted by SIGTERM"):
        Forgiving("mlflow", lambda: told, pytest.fail).log({}, 1)


@pytest.mark.parametrize(
    ("kind", "package"), [(LoggerKind.tensorboard, "tensorboard"), (LoggerKind.mlflow, "mlflow-skinny")]
)
def test_a_package_that_is_missing_gets_one_line(kind: LoggerKind, package: str) -> None:
    config = small_config()
    config.logger = LoggerConfig(kind=kind)
    with pytest.raises(ConfigError) as caught:
        require_logger(config, find=lambda _module: None)
    assert str(caught.value) == (
        f"logger={kind.value}: {package} is not installed; install it with: pip install "
        f"{package}, or leave the logger out"
    )
    require_logger(small_config(), find=lambda _module: None)
