"""A search made again from its trace alone comes to the same: population, hall of fame, result, and every text."""

import io
import lzma
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audited_judge import AuditedJudge, wide
from by_files import ByFiles, by_files
from knob_model import USAGE, answer, edit, parent_in, prompt_of, turned
from loopback_server import Canned, LoopbackServer, Received
from rich.console import Console
from small_search import (
    DATA,
    MACHINE,
    SOURCE,
    assemble,
    small_bank,
    small_config,
    small_settled,
    snapshot,
    write_table,
)
from strange_replies import REPLIES

from evo.added_questions import add_question
from evo.attempt_events import recorded_attempts
from evo.audits import recorded_audits
from evo.config import AnswererConfig, AnswererKind, Config, SelectionKind
from evo.console import RunConsole
from evo.history import Outcome
from evo.prompt import load_template
from evo.result import read_result, write_result
from evo.run import run_search
from evo.search import prepare_search
from evo.trace.replay import Replayed, replay
from evo.trace.story import story
from evo.trace.trace import read_trace
from evo.trace.trace_file import TraceError, write_trace
from population.archive import create_archive
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder
from questions.personal import personal_question
from questions.question import Layer


class Signalling(Console):
    """A console that raises SIGTERM once so many evaluations were told of."""

    def __init__(self, after: int) -> None:
        super().__init__(file=io.StringIO(), width=200)
        self._left = after

    def print(self, *things: Any, **how: Any) -> None:
        super().print(*things, **how)
        if " → k" in str(things[0]):
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "table.jsonl.xz")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def recorded(table: Path, **how: Any) -> Config:
    config = small_config(**how)
    return replace(config, backend=replace(config.backend, table=str(table)))


def answered_by(server: LoopbackServer, config: Config) -> Config:
    answerer = AnswererConfig(
        kind=AnswererKind.openai, model="m", base_url=server.url, api_key_env="", concurrency=2, max_tokens=2000,
        max_retries=0, usd_per_million_prompt_tokens=1.0, usd_per_million_completion_tokens=10.0,
    )  # fmt: skip
    return replace(config, answerer=answerer)


def exported(folder: RunFolder, path: Path) -> Path:
    with read_archive(folder) as archive:
        write_trace(path, story(folder, archive))
    return path


def replayed(folder: RunFolder, root: Path) -> Replayed:
    """The replay of a run's trace, which is all that it has: the run's own files are out of the way meanwhile."""
    trace = exported(folder, root / "trace.jsonl.xz")
    hidden = folder.path.rename(root / "hidden")
    try:
        return replay(read_trace(trace), root / "runs", "replay", RunConsole(console=quiet(), budget=None))
    finally:
        hidden.rename(folder.path)


def left_by(folder: RunFolder) -> dict[str, Any]:
    """All that a run leaves behind, but for times and for where its seeds lie."""
    seen = snapshot(folder)
    if seen["checkpoint"]:
        del seen["checkpoint"]["settings_fingerprint"], seen["checkpoint"]["counters"]["elapsed_ms"]
    with read_archive(folder) as archive:
        seen["spend"] = list(archive.spend())
    return seen


def assert_same(folder: RunFolder, again: Replayed) -> None:
    assert again.differing == ()
    assert read_result(again.folder) == read_result(folder) == again.result
    assert left_by(again.folder) == left_by(folder)


@pytest.mark.parametrize("selection", list(SelectionKind))
def test_an_offline_run(table: Path, tmp_path: Path, folder: RunFolder, selection: SelectionKind) -> None:
    run_search(recorded(table, selection=selection), MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert {"population", "hall_of_fame", "best", "history", "stop_reason"} <= set(again.compared)
    assert (again.result["generations"], again.result["evaluations"]) == (4, len(again.result["history"]))


def test_a_run_with_audits_of_its_wins_and_of_its_best(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    """The replay has nobody to audit: what was found is in the trace."""
    config, judge = recorded(table), AuditedJudge(wide, lambda source: source == SOURCE)
    with create_archive(folder) as archive:
        search = assemble(config, folder, archive, judge)
        stop = search.run()
        search.toolbox.crown()
        prepared = prepare_search(config, small_settled(config), small_bank(), archive, folder, lambda _: None)
        write_result(folder, prepared.result(search.state, stop))
    with read_archive(folder) as archive:
        found = recorded_audits(archive)
    assert {audit.failed for audit in found.values()} == {True, False}
    again = replayed(folder, tmp_path)
    assert again.differing == ()
    assert again.result["best"]["audit"] == "passed"
    with read_archive(again.folder) as archive:
        assert recorded_audits(archive) == found


@pytest.mark.parametrize("evaluations", [1, 6, 11])
def test_a_budget_that_ends_within_a_generation(
    table: Path, tmp_path: Path, folder: RunFolder, evaluations: int
) -> None:
    run_search(recorded(table, generations=None, evaluations=evaluations), MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert again.result["stop_reason"] == f"evaluation budget reached: {evaluations} of {evaluations}"


@pytest.mark.parametrize("after", [1, 4])
def test_an_interrupted_run_as_far_as_it_came(table: Path, tmp_path: Path, folder: RunFolder, after: int) -> None:
    assert run_search(recorded(table), MACHINE, folder, Signalling(after)).exit_code == 128 + signal.SIGTERM
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert (again.result["stop_reason"], again.result["evaluations"]) == ("interrupted by SIGTERM", after + 1)


def test_a_run_in_parts(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    run_search(recorded(table), MACHINE, folder, Signalling(6))
    run_search(recorded(table, generations=3), MACHINE, folder, quiet())
    add_question(folder, personal_question("Which load is waited for longest?", layer=Layer.MEMORY))
    run_search(recorded(table, generations=5), MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert any("Which load is waited for longest?" in text for _, _, text in snapshot(again.folder)["questions"])


def strange(received: Received) -> Canned:
    """Replies that cannot be read, kernels that are known or fail, and requests that bring nothing."""
    number, parent = received.body["seed"], parent_in(prompt_of(received))
    if number < len(REPLIES):
        message = REPLIES[number].message(parent)
        return LoopbackServer.completion(message.pop("content"), usage=USAGE, **message)
    if number == 14:
        return LoopbackServer.error(503, "slow down (a little)")
    if number == 15:
        return LoopbackServer.raw(body={"id": "1"}, announced=99_999)
    if number in (16, 17):
        return LoopbackServer.completion(edit(parent, turned(parent, 0)), usage=USAGE)
    return answer(received, number)


@pytest.mark.parametrize("stop", [{"generations": 4}, {"generations": None, "evaluations": 12}])
def test_unreadable_replies_duplicates_and_failures(
    server: LoopbackServer, table: Path, tmp_path: Path, folder: RunFolder, stop: dict[str, Any]
) -> None:
    server.script = strange
    config = answered_by(server, recorded(table, lambda_=7, **stop))
    run_search(config, MACHINE, folder, quiet())
    with read_archive(folder) as archive:
        outcomes = {attempt.outcome for attempt in recorded_attempts(archive)}
        statuses = archive.statuses()
    if stop["generations"]:
        assert outcomes == set(Outcome)
        assert statuses.keys() > {"PASSED"}
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert again.result["spend"]["cost_usd"] > 0.01
    assert again.result["model"] == "m"
    assert server.url.encode() not in lzma.decompress((tmp_path / "trace.jsonl.xz").read_bytes())


@pytest.mark.parametrize("evaluations", [9, 12])
def test_a_request_that_failed_in_a_generation_that_was_cut_off(
    server: LoopbackServer, table: Path, tmp_path: Path, folder: RunFolder, evaluations: int
) -> None:
    def script(received: Received) -> Canned:
        number = received.body["seed"]
        return server.error(503, "slow down") if number % 5 == 4 else answer(received, number)

    server.script = script
    config = answered_by(server, recorded(table, lambda_=6, generations=None, evaluations=evaluations))
    run_search(config, MACHINE, folder, quiet())
    assert_same(folder, replayed(folder, tmp_path))


def test_an_answerer_that_gave_up(server: LoopbackServer, table: Path, tmp_path: Path, folder: RunFolder) -> None:
    def script(received: Received) -> Canned:
        number = received.body["seed"]
        return server.error(401, "no") if number >= 6 else answer(received, number)

    server.script = script
    config = answered_by(server, recorded(table))
    config = replace(config, answerer=replace(config.answerer, concurrency=1))
    run_search(config, MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert again.differing == ()
    assert again.result["stop_reason"].startswith("the answerer gave up: the server answered 401")
    assert left_by(again.folder)["replies"] == left_by(folder)["replies"]


def test_a_model_that_calls_tools(server: LoopbackServer, table: Path, tmp_path: Path, folder: RunFolder) -> None:
    def script(received: Received) -> Canned:
        if not any(said["role"] == "assistant" for said in received.body["messages"]):
            return LoopbackServer.calls(("measure", '{"draft": "parent"}'), usage=USAGE)
        return answer(received, received.body["seed"])

    server.script = script
    config = answered_by(server, recorded(table, generations=2))
    config = replace(config, answerer=replace(config.answerer, tools=True))
    run_search(config, MACHINE, folder, quiet())
    again = replayed(folder, tmp_path)
    assert_same(folder, again)
    assert again.result["spend"]["tool_s"] > 0
    assert tool_calls(again.folder) == tool_calls(folder)
    assert len(tool_calls(folder)) == 8


def tool_calls(folder: RunFolder) -> list[str]:
    with read_archive(folder) as archive:
        return sorted(event.record for event in archive.events() if event.kind == "tool_call")


def test_a_bank_and_a_template_of_the_runs_own(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    bank, template = tmp_path / "bank.yaml", tmp_path / "mine.md"
    bank.write_text((DATA / "bank.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    template.write_text(load_template().frame.replace("Below is", "Here is"), encoding="utf-8")
    config = recorded(table, generations=2)
    config = replace(
        config,
        style=replace(config.style, template=str(template)),
        questions=replace(config.questions, files=[str(bank)]),
    )
    run_search(config, MACHINE, folder, quiet())
    trace = read_trace(exported(folder, tmp_path / "first.jsonl"))
    bank.unlink()
    template.unlink()
    again = replay(trace, tmp_path / "runs", "replay", RunConsole(console=quiet(), budget=None))
    assert_same(folder, again)
    assert all(text.startswith("Here is") for _, _, text in snapshot(again.folder)["prompts"])


def partly(run: ByFiles) -> None:
    run.begin("n=3")
    run.evaluate()
    run.generation("n=2")
    run.ask("n=4")
    run.answer("0002.md", "0004.md")
    run.tell("partial=true")


def waiting_for_replies(run: ByFiles) -> None:
    run.whole_run(1)
    run.ask("n=5")
    run.answer("0004.md")
    run.tell()


@pytest.mark.parametrize("work", [lambda run: run.whole_run(2), partly, waiting_for_replies])
def test_a_run_by_files(tmp_path: Path, work: Callable[[ByFiles], None]) -> None:
    run = by_files(tmp_path)
    work(run)
    again = replayed(run.folder, tmp_path)
    assert_same(run.folder, again)


def test_what_does_not_come_out_as_in_the_trace_is_named(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    run_search(recorded(table, generations=2), MACHINE, folder, quiet())
    trace = read_trace(exported(folder, tmp_path / "trace.jsonl"))
    assert trace.result is not None
    trace.result = {**trace.result, "evaluations": 999}
    again = replay(trace, tmp_path / "runs", "replay", RunConsole(console=quiet(), budget=None))
    assert again.differing == ("evaluations",)


def test_an_audit_that_another_version_put_into_other_words(table: Path, tmp_path: Path, folder: RunFolder) -> None:
    run_search(recorded(table, generations=2), MACHINE, folder, quiet())
    trace = read_trace(exported(folder, tmp_path / "trace.jsonl"))
    assert trace.result is not None
    best = {key: value for key, value in trace.result["best"].items() if not key.startswith("audit_")}
    trace.result = {**trace.result, "best": {**best, "audit": "passed"}}
    again = replay(trace, tmp_path / "runs", "replay", RunConsole(console=quiet(), budget=None))
    assert again.result["best"]["audit"] == "not run"
    assert again.differing == ()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"evolution.mu": "many"}, "evolution.mu"),
        ({"evolution.nu": 3}, "nu"),
        ({"evolution.mu": 0}, "evolution.mu=0: expected at least 1"),
        ({"style.template": "${oc.env:HOME}"}, "refer to variables"),
        ({"backend": "abacus"}, "abacus"),
        ({"suite.scenarios": []}, "no scenarios"),
    ],
)
def test_settings_that_cannot_be_used_leave_no_folder(
    table: Path, tmp_path: Path, folder: RunFolder, settings: dict[str, Any], said: str
) -> None:
    run_search(recorded(table, generations=1), MACHINE, folder, quiet())
    trace = read_trace(exported(folder, tmp_path / "trace.jsonl"))
    trace.settings = {**trace.settings, **settings}
    with pytest.raises(TraceError, match=said):
        replay(trace, tmp_path / "runs", "replay", RunConsole(console=quiet(), budget=None))
    assert not (tmp_path / "runs").exists()
