"""What runs measured becomes a table from which the same search runs again, without anything measured anew."""

import contextlib
import io
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from audited_judge import failed_check
from rich.console import Console
from small_search import MACHINE, SOURCE, judge_knobs, run_part, small_config, snapshot

from evo.audits import AUDIT_EVENT
from evo.commands.table import table
from evo.evaluation_records import record_evaluation
from evo.exported_table import gather_evaluations
from evo.run import run_search
from evo.seed_words import seed_words
from evo.settings import ConfigError, compose_config
from evo.suite_words import suite_words
from evo.suites import load_suite, to_suite
from fitness.audit_record import Audit, after_audit
from fitness.backends.recorded import RecordedEvaluator, load_table
from fitness.evaluation import Evaluation, Status
from population.archive import open_archive
from population.atomic_file import parse_json, strict_json
from population.individual import Individual, individual_id
from population.records import EventRecord
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = create_run_folder(tmp_path / "runs", "first")
    run_part(small_config(generations=2), made)
    return made


def said_of(folder: Path, *words: str) -> str:
    out = io.StringIO()
    with contextlib.chdir(folder):
        assert table(words, Console(file=out, width=500)) == 0
    return out.getvalue()


def add(run: RunFolder, evaluation: Evaluation, source: str, birth: int = -9) -> None:
    with open_archive(run) as archive:
        archive.record_individual(Individual.from_source(source, birth=birth, generation=0, operator="seed"))
        name = Individual.from_source(source, birth=birth, generation=0, operator="seed").id
        record_evaluation(archive, name, evaluation)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.xz"])
def test_a_search_in_the_table_of_a_run_is_that_run_again(tmp_path: Path, run: RunFolder, name: str) -> None:
    measured = snapshot(run)["evaluations"]
    said = said_of(tmp_path, "first", "--out", name)
    assert f"{name}: {len(measured)} evaluations of {len(measured)} kernels on tiny" in said
    served = RecordedEvaluator(load_table(tmp_path / name))
    again = create_run_folder(tmp_path / "runs", "again")
    run_part(small_config(generations=2), again, served)
    assert snapshot(again) == snapshot(run)


def options_told(folder: Path, out: str) -> list[str]:
    """The words of the `evo evolve` that the command names."""
    line = said_of(folder, "first", "--out", out).splitlines()[0]
    return shlex.split(line.partition("to search in it: evo evolve ")[2])


def test_the_command_that_is_named_searches_in_the_table_of_a_suite_of_ones_own(
    tmp_path: Path, run: RunFolder
) -> None:
    words = options_told(tmp_path, str(tmp_path / "t.jsonl"))
    assert words[:2] == ["backend=recorded", f"backend.table={tmp_path}/t.jsonl"]
    assert words[2:4] == ['suite.name="tiny"', "suite.edges=false"]
    config = compose_config([*words, "stop.evaluations=1"])
    assert to_suite(config.suite) == to_suite(small_config().suite)
    [seed_file] = config.seeds or ()
    assert Path(seed_file) == (run.kernels / f"{individual_id(SOURCE)}.cu").relative_to(tmp_path)
    again = create_run_folder(tmp_path / "runs", "again")
    with contextlib.chdir(tmp_path):
        outcome = run_search(config, MACHINE, again, Console(file=io.StringIO()))
    [seed, *_] = gather_evaluations({"first": run})
    assert outcome.result["seed"]["geomean"] == seed.geomean


def test_the_seeds_of_a_run_in_a_folder_of_any_name_are_read_back(tmp_path: Path, run: RunFolder) -> None:
    moved = RunFolder(run.path.rename(tmp_path / "a, 'b'=[c]"))
    [word] = seed_words([moved])
    assert compose_config([word]).seeds == [str(moved.kernels / f"{individual_id(SOURCE)}.cu")]


def test_a_run_without_its_seeds_files_names_none(run: RunFolder) -> None:
    (run.kernels / f"{individual_id(SOURCE)}.cu").unlink()
    assert seed_words([run]) == []


def test_a_shipped_suite_is_named_and_one_that_only_has_its_name_is_not(tmp_path: Path, run: RunFolder) -> None:
    [first, *_] = gather_evaluations({"first": run})
    smoke = load_suite("smoke").scenarios
    timings = tuple(replace(first.timings[0], scenario=scenario.name) for scenario in smoke)
    assert suite_words([run], replace(first, suite="smoke", timings=timings)) == ["suite=smoke"]
    assert suite_words([run], replace(first, suite="smoke"))[0] == 'suite.name="smoke"'
    with pytest.raises(ConfigError, match="no run tells all shapes of the suite tiny"):
        suite_words([run], replace(first, timings=timings))


def test_a_table_of_few_kernels_says_what_a_search_in_it_meets(tmp_path: Path, run: RunFolder) -> None:
    kernels = len(snapshot(run)["evaluations"])
    told = said_of(tmp_path, "first", "--out", "t.jsonl").splitlines()[-1]
    assert told == (
        f"with {kernels} kernels a search will mostly meet others, which are UNSUPPORTED there; "
        "benchmarks/variant_table.py makes a table to search in"
    )
    source = (Path(__file__).parent / "data" / "knobs.cu").read_text(encoding="utf-8")
    evaluation = judge_knobs(source)
    for n in range(50 - kernels):
        add(run, replace(evaluation, source_sha256=f"{n:064x}"), f"// kernel {n}", -9 - n)
    assert "mostly" not in said_of(tmp_path, "first", "--out", "many.jsonl")


def test_what_an_audit_refused_is_wrong_in_the_table_too(tmp_path: Path, run: RunFolder) -> None:
    [seed, *others] = gather_evaluations({"first": run})
    audit = Audit(why=("far ahead",), checks=(failed_check(),))
    with open_archive(run) as archive:
        name = next(iter(archive.scores())).individual_id
        archive.record_event(EventRecord(kind=AUDIT_EVENT, key=name, record=strict_json(audit.to_json())))
    said_of(tmp_path, "first", "--out", "t.jsonl")
    rows = [Evaluation.from_json(parse_json(row)) for row in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert seed.status is Status.PASSED
    assert rows == [after_audit(seed, audit), *others]
    assert (rows[0].status, rows[0].geomean, rows[0].timings) == (Status.INCORRECT, None, ())


def test_an_evaluation_that_two_runs_share_is_there_once(tmp_path: Path, run: RunFolder) -> None:
    other = create_run_folder(tmp_path / "runs", "other")
    run_part(small_config(generations=1), other)
    alone = gather_evaluations({"first": run})
    assert gather_evaluations({"first": run, "other": other}) == alone


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suite": "huge"}, "suite 'tiny' and 'huge'"),
        ({"device": "another"}, "device 'test device' and 'another'"),
        ({"baseline": "fa9"}, "baseline 'sdpa' and 'fa9'"),
    ],
)
def test_runs_that_were_measured_apart_are_refused(
    tmp_path: Path, run: RunFolder, change: dict[str, str], said: str
) -> None:
    source = "// another kernel"
    evaluation = judge_knobs((Path(__file__).parent / "data" / "knobs.cu").read_text(encoding="utf-8"))
    where = {key: value for key, value in change.items() if key != "suite"}
    elsewhere = replace(
        evaluation, suite=change.get("suite", evaluation.suite), environment=replace(evaluation.environment, **where)
    )
    other = create_run_folder(tmp_path / "runs", "other")
    run_part(small_config(generations=0), other)
    add(other, elsewhere, source)
    with pytest.raises(ConfigError) as error:
        gather_evaluations({"first": run, "other": other})
    assert str(error.value) == f"first and other were measured apart: {said}; make a table of each"


def test_a_suite_that_changed_under_its_name_is_refused(tmp_path: Path, run: RunFolder) -> None:
    evaluation = judge_knobs((Path(__file__).parent / "data" / "knobs.cu").read_text(encoding="utf-8"))
    add(run, replace(evaluation, timings=evaluation.timings[:1]), "// another kernel")
    with pytest.raises(ConfigError, match="the suite tiny had other scenarios in some of these runs"):
        gather_evaluations({"first": run})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["first"], "no file named"),
        (["first", "--out"], "no file named"),
        (["--out", "t.jsonl"], "no run named"),
        (["first", "--fast", "--out", "t.jsonl"], "first --fast"),
        (["first", "--out", "t.csv"], "--out t.csv"),
        (["nowhere", "--out", "t.jsonl"], "nowhere: no such run"),
    ],
)
def test_a_bad_command_line_gets_one_line(tmp_path: Path, run: RunFolder, words: list[str], said: str) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(Exception, match=said):
        table(words, Console(file=io.StringIO()))
    assert not list(tmp_path.glob("t.*"))
