"""`evo trace` as a person types it: the story that it writes, the search that it makes again, and what it refuses."""

import contextlib
import io
import json
import lzma
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_search import MACHINE, small_config, write_table

from evo.added_questions import add_question
from evo.cli import run
from evo.run import run_search
from evo.trace.trace_file import sealed
from population.archive import open_archive
from population.archive_reader import read_archive
from population.atomic_file import parse_json
from population.checkpoint import load_newest
from population.individual import Individual
from population.records import EventRecord, SpendRecord
from population.run_folder import RunFolder, create_run_folder
from questions.bank import load_bank, shipped_bank_path
from questions.entry import write_entry
from questions.personal import personal_question
from questions.question import Layer

ADDED = personal_question("Which load is waited for longest?", layer=Layer.MEMORY)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/one, a run of three generations with a person's question, a call of a tool, and costs of three kinds."""
    root = tmp_path_factory.mktemp("made")
    config = small_config(generations=3)
    config = replace(config, backend=replace(config.backend, table=str(write_table(root / "table.jsonl.xz"))))
    folder = create_run_folder(root / "runs", "one")
    add_question(folder, ADDED)
    run_search(config, MACHINE, folder, Console(file=io.StringIO()))
    call = {"number": 2, "attempt": 0, "order": 0, "name": "measure", "arguments": "{}", "result": "1 ms", "seconds": 2}
    with open_archive(folder) as archive:
        archive.record_event(EventRecord(kind="tool_call", record=json.dumps(call)))
        for key, kind in (("tools 2/0, 0", "tool_s"), ("without a reply 3/0, 1", "cost_usd"), ("rent", "cost_usd")):
            archive.record_spend(SpendRecord(key=key, kind=kind, amount=0.5))
    result = json.loads(folder.result.read_text(encoding="utf-8"))
    with read_archive(folder) as reader:
        result["spend"] = reader.spend_so_far()
    folder.result.write_text(json.dumps(result), encoding="utf-8")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made / "runs", tmp_path / "runs")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def evo(*words: str) -> tuple[int, str, str]:
    out, errors = io.StringIO(), io.StringIO()
    code = run(("trace", *words), Console(file=out, width=40), Console(file=errors, width=40))
    return code, out.getvalue(), errors.getvalue()


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


def of_kind(lines: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [{name: each[name] for name in each if name != "kind"} for each in lines if each["kind"] in kinds]


def test_the_story_holds_all_of_the_run(here: Path) -> None:
    code, out, errors = evo("export", "one")
    lines = lines_of(out)
    assert (code, errors) == (0, "")
    assert lines[0] == {"kind": "trace", "schema": 1, "run": "one", "template": None}
    folder = RunFolder(here / "runs" / "one")
    with read_archive(folder) as archive:
        assert of_kind(lines, "question") == [asdict(each) for each in archive.questions()]
        assert of_kind(lines, "prompt") == sorted(map(asdict, archive.prompts()), key=lambda each: each["number"])
        assert of_kind(lines, "reply") == sorted(map(asdict, archive.replies()), key=lambda each: each["number"])
        told = {each["id"]: each for each in of_kind(lines, "candidate")}
        made = (Individual(**{**each, "parent_ids": tuple(each["parent_ids"])}) for each in told.values())
        assert {each.id: each for each in made} == {each.id: each for each in archive.individuals()}
        evaluations = sorted(of_kind(lines, "evaluation"), key=lambda each: each["order"])
        assert evaluations == [
            {"id": each.individual_id, "order": place, "record": parse_json(each.record)}
            for place, each in enumerate(archive.evaluations())
        ]
        events = [{"event": each.kind, "key": each.key, "record": parse_json(each.record)} for each in archive.events()]
        assert of_kind(lines, "attempt") == [each["record"] for each in events if each["event"] == "attempt"]
        assert of_kind(lines, "tool_call") == [each["record"] for each in events if each["event"] == "tool_call"]
        others = [each for each in events if each["event"] not in ("attempt", "tool_call")]
        assert of_kind(lines, "event") == others
        assert sorted(of_kind(lines, "spend"), key=lambda each: each["order"]) == [
            {"order": place, "spent_on": each.key, "what": each.kind, "amount": each.amount}
            for place, each in enumerate(archive.spend())
        ]
    assert of_kind(lines, "bank") == [{"question": write_entry(each)} for each in load_bank([shipped_bank_path()])]
    loaded = load_newest(folder.checkpoints)
    assert loaded is not None
    [checkpoint] = of_kind(lines, "checkpoint")
    assert checkpoint["population"] == [asdict(each) for each in loaded.checkpoint.population]
    assert of_kind(lines, "result") == [{"result": json.loads(folder.result.read_text(encoding="utf-8"))}]
    assert lines[-1]["kind"] == "end"


def test_the_story_goes_by_the_mutations_numbers(here: Path) -> None:
    lines = [line for line in lines_of(evo("export", "one")[1]) if line["kind"] != "bank"]
    kinds = [line["kind"] for line in lines]
    assert kinds[:5] == ["trace", "event", "spend", "candidate", "evaluation"]
    assert kinds[-3:] == ["checkpoint", "result", "end"]
    numbers = [line.get("number", line.get("birth", -1)) for line in lines if line["kind"] not in ("event", "spend")]
    told = [number for number in numbers if number >= 0]
    assert told == sorted(told)
    first = kinds.index("question")
    assert (lines[first - 1]["event"], lines[first - 1]["record"]["number"]) == ("question_added", 0)
    assert kinds[first : first + 5] == ["question", "prompt", "reply", "attempt", "candidate"]
    call = kinds.index("tool_call")
    assert kinds[call - 2 : call + 4] == ["question", "prompt", "tool_call", "spend", "reply", "attempt"]


def test_a_replay_by_the_command(here: Path) -> None:
    code, out, _ = evo("export", "one", "--out", "one.jsonl.xz")
    assert (code, out) == (
        0, "one.jsonl.xz: the trace of runs/one; to search again from it: evo trace replay one.jsonl.xz\n",
    )  # fmt: skip
    assert lzma.decompress((here / "one.jsonl.xz").read_bytes()).decode() == evo("export", "runs/one")[1]
    result = (here / "runs" / "one" / "result.json").read_bytes()
    shutil.rmtree(here / "runs")
    code, out, errors = evo("replay", "one.jsonl.xz", "name=again")
    assert (code, errors) == (0, "")
    assert out.splitlines()[-1].startswith("as in the trace: population, hall_of_fame, schema, backend")
    assert json.loads((here / "runs" / "again" / "result.json").read_bytes()) == json.loads(result)
    assert evo("replay", "one.jsonl.xz")[0] == 0
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["again", "replay-one"]
    # the trace of the replay tells the same story, but for the run's name and its seeds' paths
    first, second = (lines_of(evo("export", name)[1]) for name in ("again", "replay-one"))
    kinds = ("question", "prompt", "reply", "attempt", "candidate", "evaluation", "checkpoint", "result", "spend")
    told = lines_of(lzma.decompress((here / "one.jsonl.xz").read_bytes()).decode())
    for lines in (first, second):
        assert of_kind(lines, *kinds) == of_kind(told, *kinds)


def test_a_replay_that_comes_out_otherwise_is_no_success(here: Path) -> None:
    lines = lines_of(evo("export", "one")[1])[:-1]
    lines[-1]["result"]["best"]["geomean"] = 99.0
    Path("other.jsonl").write_bytes(b"".join(sealed(lines)))
    code, out, _ = evo("replay", "other.jsonl")
    assert (code, out.splitlines()[-1]) == (1, "not as in the trace: best")


def test_a_run_that_went_on_after_its_result_is_told_without_it(here: Path) -> None:
    result = json.loads(Path("runs/one/result.json").read_bytes())
    Path("runs/one/result.json").write_text(json.dumps({**result, "evaluations": 1}), encoding="utf-8")
    assert of_kind(lines_of(evo("export", "one")[1]), "result") == []
    Path("runs/one/result.json").unlink()
    evo("export", "one", "--out", "one.jsonl")
    code, out, _ = evo("replay", "one.jsonl")
    assert (code, out.splitlines()[-1]) == (0, "as in the trace: population, hall_of_fame")
    again = json.loads(Path("runs/replay-one/result.json").read_bytes())
    assert again == {**result, "stop_reason": "the trace ends here"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "evo: trace: no action named; expected evo trace export RUN"),
        (["import"], "evo: trace: 'import' is no action"),
        (["export"], "evo: trace export: no run named"),
        (["export", "one", "two"], "evo: trace export: one two; expected"),
        (["export", "one", "--out"], "evo: trace export: one --out; expected"),
        (["export", "--in", "one"], "evo: trace export: --in one; expected"),
        (["export", "nowhere"], "nowhere: no such run"),
        (["export", "one", "--out", "runs"], "evo: runs is there already; name another file"),
        (["export", "one", "--out", "no/where.jsonl"],
         "evo: no/where.jsonl cannot be written (No such file or directory); name another file or make room"),
        (["replay", "unmeasured.jsonl"], "evo: the trace lacks the evaluation of its seed k"),
        (["replay"], "evo: trace replay: no trace named"),
        (["replay", "a", "b"], "evo: trace replay: a b; expected"),
        (["replay", "--all"], "evo: trace replay: --all; expected"),
        (["replay", "nowhere.jsonl"], "evo: nowhere.jsonl cannot be read"),
        (["replay", "runs/one/archive.sqlite"], "evo: runs/one/archive.sqlite, line 1 is no line of a trace"),
        (["replay", "cut.jsonl"], "evo: cut.jsonl, line 150: the trace is cut off there"),
        (["replay", "newer.jsonl"], "evo: newer.jsonl: schema 2, written by a newer evo"),
        (["replay", "altered.jsonl"], "evo: altered.jsonl was altered since it was written"),
        (["replay", "short.jsonl"], "evo: short.jsonl: the run that it tells of had not begun"),
        (["replay", "strange.jsonl"], "evo: strange.jsonl, line 2: no parable of a trace"),
        (["replay", "poor.jsonl"], "evo: poor.jsonl, line 2: no reply of a trace"),
        (["replay", "whole.jsonl", "name=.."], "evo: run name '..': expected a folder's name"),
    ],
)
def test_what_cannot_be_done_gets_one_line_and_leaves_nothing(here: Path, words: list[str], said: str) -> None:
    whole = evo("export", "one")[1]
    unmeasured = [line for line in lines_of(whole)[:-1] if line["kind"] != "evaluation"]
    Path("unmeasured.jsonl").write_bytes(b"".join(sealed(unmeasured)))
    first = lines_of(whole)[0]
    for name, content in {
        "whole": whole,
        "cut": "".join(whole.splitlines(keepends=True)[:150])[:-9],
        "altered": whole.replace('"birth": 3', '"birth": 4', 1),
        "newer": whole.replace('"schema": 1', '"schema": 2', 1),
        "short": b"".join(sealed([first])).decode(),
        "strange": b"".join(sealed([first, {"kind": "parable"}])).decode(),
        "poor": b"".join(sealed([first, {"kind": "reply", "number": 1}])).decode(),
    }.items():
        Path(f"{name}.jsonl").write_text(content, encoding="utf-8")
    before = sorted(here.rglob("*"))
    code, out, errors = evo(*words)
    assert (code, out, len(errors.splitlines())) == (2, "", 1)
    assert said in errors
    assert sorted(here.rglob("*")) == before
