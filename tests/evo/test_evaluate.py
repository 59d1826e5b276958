"""`evo evaluate`: pending/ is all it needs, measured/ is all it leaves, and it does nothing twice."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import ByFiles, by_files, copied, evo, judge, names, write_table
from small_search import MACHINE

from evo.choices import Settled
from evo.config import BackendConfig, BackendKind, BaselineKind, Config
from evo.judging import EvaluatesAll
from evo.measuring import find_work, measure, settle_here
from evo.pending import Job, publish, read_job
from evo.settings import ConfigError, compose_config
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault
from fitness.probe import Gpu, Machine
from population.individual import individual_id
from population.run_folder import RunFolder

GPU = Gpu(index=0, name="test GPU", capability=(9, 0), sm_count=132, memory_gib=80.0)


@pytest.fixture(scope="module")
def once_told(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    """A run with its seed measured, and three candidates that wait."""
    run = by_files(tmp_path_factory.mktemp("evaluate"))
    run.begin()
    run.evaluate()
    run.ask()
    run.answer()
    run.tell()
    return run


@pytest.fixture
def told(once_told: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_told, tmp_path)


class Judge:
    """EvaluatesAll, from the knobs; `meanwhile` is called before each evaluation."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        evaluations = []
        for place, source in enumerate(sources):
            self.meanwhile()
            self.judged.append(individual_id(source))
            evaluations.append(judge(source))
            if on_done is not None:
                on_done(place, evaluations[-1])
        return evaluations

    @contextmanager
    def opened(self, config: Config, settled: Settled, machine: Machine) -> Iterator[EvaluatesAll]:
        yield self


def waiting(folder: RunFolder) -> list[str]:
    return sorted(path.stem for path in folder.pending.glob("*.cu"))


def test_the_folder_is_enough_and_the_evaluation_is_all_that_comes_back(told: ByFiles, tmp_path: Path) -> None:
    elsewhere = RunFolder(tmp_path / "elsewhere")
    shutil.copytree(told.folder.pending, elsewhere.pending)
    assert sorted(told.evaluate(elsewhere)) == waiting(elsewhere)
    assert names(elsewhere.path) == ["measured", "pending"]
    for name in waiting(elsewhere):
        record = json.loads((elsewhere.measured / f"{name}.json").read_text(encoding="utf-8"))
        source = (elsewhere.pending / f"{name}.cu").read_bytes().decode("utf-8")
        assert Evaluation.from_json(record) == judge(source)
    shutil.copytree(elsewhere.measured, told.folder.measured, dirs_exist_ok=True)
    assert "generation 1 is complete" in told.tell().out


def test_the_job_says_what_is_measured_and_since_the_seed_also_where(told: ByFiles, tmp_path: Path) -> None:
    job = read_job(told.folder.pending)
    assert (job.backend.kind, job.baseline.kind, job.suite.name) == (BackendKind.auto, BaselineKind.auto, "smoke")
    assert job.suite == compose_config(["suite=smoke"]).suite
    assert job.environment is not None
    assert (job.environment.device, job.environment.baseline_version) == ("test device", "2.0")
    publish(tmp_path / "again", job, [])
    assert read_job(tmp_path / "again") == job
    text = (tmp_path / "again" / "job.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "api_key" not in text


def test_nothing_is_measured_twice(told: ByFiles) -> None:
    first, *others = waiting(told.folder)
    judge_of_all = Judge()
    work = find_work(told.folder, [])
    settled = settle_here(find_work(told.folder, ["backend=recorded", "backend.table=x"]), MACHINE)
    assert sorted(work.sources) == [first, *others]
    measure(work, settled, MACHINE, judge_of_all.opened, lambda _name, _evaluation: None)
    assert find_work(told.folder, []).sources == {}
    (told.folder.measured / f"{first}.json").write_text("{", encoding="utf-8")
    (told.folder.measured / f"{others[0]}.json").unlink()
    (told.folder.measured / f"{others[0]}.json.12.tmp").write_text("{", encoding="utf-8")
    work = find_work(told.folder, [])
    assert sorted(work.sources) == [first, others[0]]
    assert work.measured_before == 2  # the seed, and the third


def test_a_signal_ends_it_in_order_and_what_was_measured_is_kept(told: ByFiles) -> None:
    calls = 0

    def interrupt_the_second() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGTERM)

    work = find_work(told.folder, ["backend=recorded", "backend.table=x"])
    heard: list[str] = []
    done = measure(
        work, settle_here(work, MACHINE), MACHINE, Judge(interrupt_the_second).opened,
        lambda name, _evaluation: heard.append(name),
    )  # fmt: skip
    assert done.interruption is not None
    assert done.interruption.exit_code == 128 + signal.SIGTERM
    assert list(done.evaluations) == heard == [next(iter(work.sources))]
    assert sorted(find_work(told.folder, []).sources) == sorted(set(work.sources) - set(heard))


def test_a_source_that_was_carried_in_part_is_named_and_left(told: ByFiles) -> None:
    first, second, third = waiting(told.folder)
    pending = told.folder.pending
    half = pending / f"{first}.cu"
    half.write_text(half.read_text(encoding="utf-8")[:100], encoding="utf-8")
    (pending / f"{second}.cu").write_bytes(b"\xff\xfe")
    (pending / f"{third}.cu.9.tmp").write_text("half", encoding="utf-8")
    (pending / "notes.cu").write_text("x", encoding="utf-8")
    work = find_work(told.folder, [])
    assert list(work.sources) == [third]
    assert [note.split(" ")[0] for note in work.notes] == [str(half), str(pending / f"{second}.cu")]
    assert "is not whole, or was altered" in work.notes[0]
    said = told.command("evaluate", "backend=recorded", f"backend.table='{told.table}'", "backend.threads=2")
    assert (said.code, "backend.threads: the run decides how it is measured" in said.errors) == (2, True)
    (pending / f"{third}.cu").unlink()
    said = told.command("evaluate")
    assert said.code == 1
    assert said.out.count("note: ") == 2


def test_nothing_to_do_needs_no_device(told: ByFiles) -> None:
    told.evaluate()
    said = told.command("evaluate")
    assert (said.code, said.errors) == (0, "")
    before = f"nothing waits in {told.folder.pending}; 4 measured before, in {told.folder.measured}. "
    assert f"{before}Where the run is: evo tell {told.folder.path}" in said.out
    told.tell()  # which empties pending/
    assert before in told.command("evaluate").out


def test_another_device_is_refused_before_anything_is_measured(told: ByFiles) -> None:
    work = find_work(told.folder, [])
    with pytest.raises(EnvironmentFault, match="began elsewhere: backend was recorded, now cuda, device was test"):
        settle_here(work, replace(MACHINE, gpus=(GPU,)))


def test_another_compiler_or_baseline_is_refused_at_the_first_evaluation(told: ByFiles, tmp_path: Path) -> None:
    def elsewhere(evaluation: Evaluation) -> Evaluation:
        return replace(evaluation, environment=replace(evaluation.environment, compiler="NVRTC 99"))

    other = replace(told, table=write_table(tmp_path / "other.jsonl", elsewhere))
    with pytest.raises(EnvironmentFault, match=r"nothing is kept: the run began elsewhere: compiler was test 1\.0"):
        other.evaluate()
    assert find_work(told.folder, []).measured_before == 1  # the seed
    assert len(told.evaluate()) == 3


def job_with(told: ByFiles, **backend: object) -> RunFolder:
    job = read_job(told.folder.pending)
    changed: Job = replace(job, backend=replace(BackendConfig(), **backend), environment=None)
    sources = [path.read_bytes().decode("utf-8") for path in told.folder.pending.glob("*.cu")]
    publish(told.folder.pending, changed, sources)
    return told.folder


def test_a_models_code_runs_natively_only_by_the_word_of_whoever_measures(told: ByFiles) -> None:
    folder = job_with(told, run_model_code=True)
    with pytest.raises(ConfigError, match=r"to allow that, add backend\.run_model_code=true"):
        settle_here(find_work(folder, []), MACHINE)
    assert find_work(folder, []).config.backend.run_model_code is False
    agreed = find_work(folder, ["backend.run_model_code=true"])
    assert settle_here(agreed, MACHINE).backend is BackendKind.host
    assert agreed.config.backend.run_model_code is True
    on_a_gpu = settle_here(find_work(folder, []), replace(MACHINE, gpus=(GPU,)))
    assert (on_a_gpu.backend, on_a_gpu.baseline, on_a_gpu.suite.name) == (BackendKind.cuda, BaselineKind.fa3, "smoke")


def test_what_this_machine_decides_can_be_set_here(told: ByFiles) -> None:
    folder = job_with(told, compile_timeout_s=7.0, cache="/from/the/run")
    assert find_work(folder, []).config.backend == BackendConfig(compile_timeout_s=7.0, cache="/from/the/run")
    set_here = find_work(folder, ["backend=cuda", "backend.device=1", "backend.cache=/here"]).config.backend
    expected = BackendConfig(kind=BackendKind.cuda, device=1, cache="/here", compile_timeout_s=7.0)
    assert set_here == expected
    assert find_work(folder, ["backend.claim=true"]).config.backend.claim is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "evaluate: no run named; expected evo evaluate RUN"),
        (["backend=host"], "evaluate: no run named"),
        (["RUN", "suite=core26"], "suite: the run decides how it is measured; only these can be set here: backend,"),
        (["RUN", "backend.devise=1"], "backend.devise: the run decides how it is measured"),
        (["RUN", "backend.device=-1"], "backend.device=-1: expected at least 0"),
        (["RUN", "backend=gpu"], "backend=gpu: there is auto, cuda, host, recorded"),
        (["nowhere"], "pending/job.json is not there, so there is nothing to measure; carry the folder here again"),
    ],
)
def test_a_bad_command_line_gets_one_line(told: ByFiles, words: list[str], said: str) -> None:
    answered = evo("evaluate", *[str(told.folder.path) if word == "RUN" else word for word in words])
    assert (answered.code, answered.out, answered.errors.count("\n")) == (2, "", 1)
    assert said in answered.errors


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[:40], "cannot be used"),
        (lambda text: "[]", "expected a job of schema 1"),
        (lambda text: text.replace('"schema": 1', '"schema": 2'), "expected a job of schema 1"),
        (lambda text: text.replace('"suite"', '"suit"'), "'suite' is missing"),
        (lambda text: text.replace('"kind": "auto"', '"kind": "gpu"'), "cannot be used"),
        (lambda text: text.replace('"batch": 1', '"batch": "many"'), "cannot be used"),
        (lambda text: text.replace('"batch": 1', '"batch": 0'), "batch is 0; expected a whole number of at least 1"),
        (lambda text: text.replace('"call_timeout_s": 20.0', '"call_timeout_s": NaN'), "NaN is no JSON number"),
        (lambda text: text.replace('"call_timeout_s": 20.0', '"call_timeout_s": 0.0'), "expected at least 0.1"),
        (lambda text: text.replace('"driver"', '"motorist"'), "cannot be used"),
        (lambda text: text.replace('"cache": null', '"cache": "${oc.env:HOME}"'), "expected an object of plain values"),
    ],
)
def test_a_job_that_is_none_gets_one_line(told: ByFiles, spoil: Callable[[str], str], said: str) -> None:
    path = told.folder.pending / "job.json"
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises((EnvironmentFault, ConfigError)) as fault:
        settle_here(find_work(told.folder, []), MACHINE)
    assert said in " ".join(str(fault.value).split())
