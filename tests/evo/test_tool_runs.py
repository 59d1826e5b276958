"""Whole runs whose model calls tools, or spends its budget: from the configuration to result.json and the archive."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from knob_model import USAGE, answer, edit, parent_in, prompt_of, turned
from loopback_server import Canned, LoopbackServer, Received
from rich.console import Console
from small_search import MACHINE, SOURCE, judge_knobs, run_part, small_config, snapshot, write_table

from evo.answerers.budget import Price
from evo.config import AnswererConfig, AnswererKind, Config
from evo.reply_records import TOOL_CALL_EVENT
from evo.run import Outcome, run_search
from evo.settings import ConfigError, check_config
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault
from population.archive_reader import read_archive
from population.atomic_file import parse_json
from population.run_folder import RunFolder, create_run_folder

REPLY_USD = Price(prompt_usd=1.0, completion_usd=10.0).cost_usd(**USAGE)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "table.jsonl.xz")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def asking(server: LoopbackServer, table: Path, *, tools: bool = False, tool_calls: int = 8, **stop: Any) -> Config:
    config = small_config(**stop)
    answerer = AnswererConfig(
        kind=AnswererKind.openai, model="m", base_url=server.url, api_key_env="", concurrency=2, max_tokens=2000,
        usd_per_million_prompt_tokens=1.0, usd_per_million_completion_tokens=10.0, tools=tools, tool_calls=tool_calls,
    )  # fmt: skip
    return replace(config, answerer=answerer, backend=replace(config.backend, table=str(table)))


def go(config: Config, folder: RunFolder) -> Outcome:
    check_config(config)
    return run_search(config, MACHINE, folder, Console(file=io.StringIO(), width=200))


def result_in(folder: RunFolder) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(folder.result.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return result


def calls_in(folder: RunFolder) -> list[dict[str, Any]]:
    with read_archive(folder) as archive:
        return [parse_json(event.record) for event in archive.events() if event.kind == TOOL_CALL_EVENT]


def turns(received: Received) -> int:
    """How often the model was asked before in this conversation."""
    return sum(said["role"] == "assistant" for said in received.body["messages"])


def seed_of(received: Received) -> int:
    number: int = received.body["seed"]  # rng_seed is 0, so this is the question's number
    return number


def measuring(received: Received) -> Canned:
    """A model that measures the parent, then its draft by an edit block, and then answers with that draft."""
    parent = parent_in(prompt_of(received))
    draft = edit(parent, turned(parent, seed_of(received)))
    match turns(received):
        case 0:
            return LoopbackServer.calls(("measure", json.dumps({"draft": "parent"})), usage=USAGE)
        case 1:
            drafts = [("measure", json.dumps({"draft": draft})), ("occupancy", json.dumps({"draft": draft}))]
            return LoopbackServer.calls(*drafts, usage=USAGE)
        case _:
            return answer(received, seed_of(received))


def test_a_model_measures_its_draft_with_the_judge_of_the_search(
    server: LoopbackServer, table: Path, folder: RunFolder
) -> None:
    server.script = measuring
    outcome = go(asking(server, table, tools=True, generations=1), folder)
    result = result_in(folder)
    assert outcome.exit_code == 0
    calls = sorted(calls_in(folder), key=lambda call: (call["number"], call["order"]))
    assert [(call["number"], call["attempt"], call["order"], call["name"]) for call in calls] == [
        (number, 0, order, name)
        for number in range(4)
        for order, name in enumerate(("measure", "measure", "occupancy"))
    ]
    for number in range(4):
        parent, draft, occupancy = (call["result"] for call in calls[3 * number : 3 * number + 3])
        for told, source in ((parent, SOURCE), (draft, turned(SOURCE, number))):
            assert told.startswith(f"PASSED: the geometric mean of 2 speedups is {judge_knobs(source).geomean:.4f}\n")
        assert occupancy == "not available: kernels are not judged on a GPU here"
    with read_archive(folder) as archive:
        replies = list(archive.replies())
        assert len(list(archive.individuals())) == result["evaluations"] == 5  # drafts are no candidates
    assert all(reply.used_tools for reply in replies)
    assert {(reply.prompt_tokens, reply.completion_tokens) for reply in replies} == {(3000, 300)}
    spend = result["spend"]
    assert spend["cost_usd"] == pytest.approx(12 * REPLY_USD)
    assert spend["tool_s"] == pytest.approx(sum(call["seconds"] for call in calls))
    assert all(call["seconds"] >= 0 for call in calls)


def test_the_prompt_names_the_tools_and_how_many_calls_there_are(
    server: LoopbackServer, table: Path, folder: RunFolder
) -> None:
    server.script = measuring
    go(asking(server, table, tools=True, tool_calls=5, generations=1), folder)
    with read_archive(folder) as archive:
        prompts = [record.text for record in archive.prompts()]
    for prompt in prompts:
        assert "Answer from this text alone" not in prompt
        assert "you may call these tools on drafts, 5 calls in all" in prompt
        ending = prompt.rstrip().split("\n")[-4:]
        assert [line.partition(":")[0] for line in ending] == ["- measure", "- profile", "- disassemble", "- occupancy"]
    declared = {tool["function"]["name"] for tool in server.received[0].body["tools"]}
    assert declared == {"measure", "profile", "disassemble", "occupancy"}


def test_without_tools_nothing_of_them_is_said_or_kept(server: LoopbackServer, table: Path, folder: RunFolder) -> None:
    server.script = lambda received: answer(received, seed_of(received))
    go(asking(server, table, generations=1), folder)
    assert calls_in(folder) == []
    assert "tool_s" not in result_in(folder)["spend"]
    for received in server.received:
        assert not {"tools", "tool_choice"} & received.body.keys()
        assert prompt_of(received).endswith("\n\nAnswer from this text alone: open no file, run nothing.\n")


def test_a_run_with_tools_that_is_resumed_repeats_no_call(
    server: LoopbackServer, table: Path, tmp_path: Path, folder: RunFolder
) -> None:
    server.script = measuring
    go(asking(server, table, tools=True, generations=1), folder)
    before = calls_in(folder)
    go(asking(server, table, tools=True, generations=2), folder)
    assert calls_in(folder)[: len(before)] == before
    assert len(calls_in(folder)) == 24
    whole = create_run_folder(tmp_path, "whole")
    go(asking(server, table, tools=True, generations=2), whole)
    assert [each["attempts"] for each in map(snapshot, (folder, whole))] == [snapshot(whole)["attempts"]] * 2


def test_the_drafts_count_neither_as_candidates_nor_against_the_budget_of_evaluations(
    server: LoopbackServer, table: Path, folder: RunFolder
) -> None:
    server.script = measuring
    result = go(asking(server, table, tools=True, generations=None, evaluations=5), folder).result
    assert result["evaluations"] == 5
    assert result["stop_reason"] == "evaluation budget reached: 5 of 5"
    assert len(calls_in(folder)) == 12


class BrokenOnDrafts:
    """A judge whose device is lost once it has judged the seed."""

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        if list(sources) != [SOURCE] or on_done is None:
            raise EnvironmentFault("the device is lost")
        on_done(0, judge_knobs(SOURCE))
        return [judge_knobs(SOURCE)]


def test_a_fault_of_the_environment_in_a_tool_ends_the_run_and_keeps_what_was_answered(
    server: LoopbackServer, table: Path, folder: RunFolder
) -> None:
    def script(received: Received) -> Canned:
        return measuring(received) if seed_of(received) == 3 else answer(received, seed_of(received))

    server.script = script
    with pytest.raises(EnvironmentFault, match="the device is lost"):
        run_part(asking(server, table, tools=True), folder, BrokenOnDrafts())
    with read_archive(folder) as archive:
        assert sorted(reply.number for reply in archive.replies()) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["offline", "replay", "mailbox"])
def test_tools_need_an_answerer_that_calls_them(kind: str) -> None:
    config = replace(small_config(), answerer=AnswererConfig(kind=AnswererKind[kind], replay_from="a run", tools=True))
    with pytest.raises(ConfigError, match=f"answerer.tools=true: {kind} calls none; expected answerer=openai"):
        check_config(config)


def test_no_calls_at_all_is_no_number_of_calls(server: LoopbackServer, table: Path) -> None:
    with pytest.raises(ConfigError, match=r"answerer\.tool_calls=0: expected at least 1"):
        check_config(asking(server, table, tools=True, tool_calls=0))


# The budget


@pytest.mark.parametrize("usage", [USAGE, None], ids=["with usage", "S6 without"])
@pytest.mark.parametrize("tools", [False, True])
def test_the_budget_ends_the_run_and_is_never_exceeded(
    server: LoopbackServer, table: Path, folder: RunFolder, usage: dict[str, int] | None, tools: bool
) -> None:
    def script(received: Received) -> Canned:
        canned = measuring(received) if tools else answer(received, seed_of(received))
        canned.body.pop("usage")
        return replace(canned, body=canned.body | ({"usage": usage} if usage else {}))

    server.script = script
    config = asking(server, table, tools=tools, generations=None, spend_usd=0.1)
    outcome = go(config, folder)
    spent = outcome.result["spend"]["cost_usd"]
    assert outcome.exit_code == 0
    assert outcome.result["stop_reason"].startswith("the next call may cost 0.02")
    assert outcome.result["stop_reason"].endswith("of 0.1 are spent (raise stop.spend_usd to go on)")
    assert 0.07 < spent <= 0.1
    if usage:
        assert spent == pytest.approx(REPLY_USD * len(server.received))
    asked = len(server.received)
    assert go(config, folder).result["spend"]["cost_usd"] == pytest.approx(spent)  # and nothing more on a resume
    assert len(server.received) == asked
    again = go(replace(config, stop=replace(config.stop, spend_usd=0.2)), folder)
    assert 0.17 < again.result["spend"]["cost_usd"] <= 0.2


def test_a_server_that_asks_for_patience_gets_it(server: LoopbackServer, table: Path, folder: RunFolder) -> None:
    refused: set[int] = set()

    def script(received: Received) -> Canned:
        number = seed_of(received)
        if number not in refused:
            refused.add(number)
            return server.error(429, "slow down", headers={"Retry-After": "0"})
        return answer(received, number)

    server.script = script
    result = go(asking(server, table, generations=1), folder).result
    assert result["stop_reason"] == "generation budget reached: 1 of 1"
    assert len(server.received) == 8
    assert result["spend"]["cost_usd"] == pytest.approx(4 * REPLY_USD)
