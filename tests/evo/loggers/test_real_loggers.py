"""TensorBoard and MLflow themselves, told of a run in two parts and read back by their own readers."""

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import by_files
from rich.console import Console
from small_search import MACHINE, small_config, write_table

from evo.config import LoggerConfig, LoggerKind
from evo.loggers.reporting import MLFLOW_EVENT
from evo.run import run_search
from population.archive_reader import read_archive
from population.atomic_file import parse_json
from population.run_folder import RunFolder, create_run_folder

Curves = Mapping[str, list[tuple[int, float]]]


def in_two_parts(root: Path, logger: LoggerConfig) -> tuple[RunFolder, str]:
    """A run that stopped in the middle of a generation and went on; what it said."""
    table = write_table(root / "table.jsonl.gz")
    folder, said = create_run_folder(root, "run"), io.StringIO()
    for evaluations in (6, 14):
        config = replace(small_config(generations=None, evaluations=evaluations), logger=logger)
        config = replace(config, backend=replace(config.backend, table=str(table)))
        run_search(config, MACHINE, folder, Console(file=said, width=200))
    return folder, said.getvalue()


def expected(folder: RunFolder) -> Curves:
    """The curves as the archive has them."""
    curves: dict[str, list[tuple[int, float]]] = {"evaluations": [], "geomean/candidate": [], "geomean/best": []}
    best = 0.0
    with read_archive(folder) as archive:
        for step, score in enumerate(archive.scores(), start=1):
            best = max(best, score.geomean or 0.0)
            curves["evaluations"].append((step, float(step)))
            curves["geomean/best"].append((step, best))
            if score.geomean is not None:
                curves["geomean/candidate"].append((step, score.geomean))
    assert len(curves["evaluations"]) == 14
    return curves


def test_tensorboard_draws_a_resumed_run_as_one(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, said = in_two_parts(tmp_path, LoggerConfig(kind=LoggerKind.tensorboard))
    assert "goes on without it" not in said
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    for name, curve in expected(folder).items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in curve]
        assert [value for _, value in found] == pytest.approx([value for _, value in curve], rel=1e-6)
    layers = [tag for tag in events.Tags()["scalars"] if tag.startswith("questions/")]
    last = [events.Scalars(layer)[-1].value for layer in layers]
    assert sum(last) == 13  # all but the seed
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"style.kind" in content
    assert b"question" in content


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_mlflow_goes_on_with_the_run_that_it_began(tmp_path: Path, scheme: str) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"{scheme}{tmp_path / 'mlruns'}"
    logger = LoggerConfig(kind=LoggerKind.mlflow, tracking_uri=uri, experiment="tests")
    folder, said = in_two_parts(tmp_path, logger)
    assert "goes on without it" not in said
    with read_archive(folder) as archive:
        event = archive.event(MLFLOW_EVENT, uri)
    assert event is not None
    name = parse_json(event.record)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("tests")
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.run_name, run.info.status) == (name, "run", "FINISHED")
    assert run.data.params["style.kind"] == "question"
    assert run.data.params["stop.evaluations"] == "6"  # as it was begun
    assert run.data.params["seeds"].startswith('["')
    for metric, curve in expected(folder).items():
        assert [(each.step, each.value) for each in client.get_metric_history(name, metric)] == curve


def test_a_server_that_is_not_there_costs_a_warning_and_not_the_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder, said = in_two_parts(tmp_path, LoggerConfig(kind=LoggerKind.mlflow, tracking_uri=f"file:{blocked}"))
    assert said.count("logger=mlflow failed, and the run goes on without it") == 2  # once in each part
    assert len(expected(folder)["evaluations"]) == 14


def test_a_run_by_files_tells_each_evaluation_once(tmp_path: Path) -> None:
    """Each of its steps makes the generation under way again."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = by_files(tmp_path)
    run.begin("n=3", "logger=tensorboard")
    run.evaluate()
    run.generation("n=3")
    run.tell()
    run.tell()
    events = EventAccumulator(str(run.folder.path / "tensorboard"))
    events.Reload()
    with read_archive(run.folder) as archive:
        made = archive.evaluation_count()
    assert made > 1
    assert [event.step for event in events.Scalars("evaluations")] == list(range(1, made + 1))

