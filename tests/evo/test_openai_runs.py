"""Whole runs of `evo evolve answerer=openai` on a server that fails them in the middle, each in its own way."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from knob_model import USAGE, answer, parent_in, prompt_of
from loopback_server import Canned, LoopbackServer, Received
from small_search import SEED, write_table
from strange_replies import REPLIES

from evo.attempt_events import recorded_attempts
from evo.history import Attempt, Outcome
from evo.prompt import estimate_tokens
from population.archive_reader import read_archive
from population.run_folder import RunFolder

KEY = "sk-proj-0123456789abcdef"
PROMPT_USD, COMPLETION_USD, MAX_TOKENS = 1e-6, 1e-5, 2000  # a token, a token, the longest reply
REPLY_USD = USAGE["prompt_tokens"] * PROMPT_USD + USAGE["completion_tokens"] * COMPLETION_USD
GOOD_END = "generation budget reached: 2 of 2"
FAULTY = 3  # the request that meets the fault, from 0

Script = Callable[[int, Received], Canned]
error, raw = LoopbackServer.error, LoopbackServer.raw


def at(number: int, fault: Callable[[Received], Canned], *, for_good: bool = False) -> Script:
    """A good model but for one request, or from one on."""

    def script(count: int, received: Received) -> Canned:
        return fault(received) if count == number or (for_good and count > number) else answer(received, count)

    return script


def two_choices(received: Received) -> Canned:
    canned = answer(received, FAULTY)
    canned.body["choices"].append({"index": 1, "message": {"content": "never read"}, "finish_reason": "length"})
    return canned


def picky(count: int, received: Received) -> Canned:
    for name in ("seed", "max_tokens", "temperature"):
        if name in received.body:
            return error(400, f"Unsupported parameter: '{name}'", param=name)
    return answer(received, count)


def without_usage(count: int, received: Received) -> Canned:
    canned = answer(received, count)
    del canned.body["usage"]
    return canned


def strange_replies(_count: int, received: Received) -> Canned:
    """The reply that the question's own number asks for, and the same where it is asked again."""
    number = received.body["seed"]  # rng_seed is 0, so this is the question's number
    if number >= len(REPLIES):
        return answer(received, number)
    message = REPLIES[number].message(parent_in(prompt_of(received)))
    return LoopbackServer.completion(message.pop("content"), usage=USAGE, **message)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A server's behaviour, and how the run must end for it."""

    script: Script
    stop: str = GOOD_END  # how the reason begins
    replies: int | None = None  # with usage, as far as that is the same for any run that goes well
    lost: int = 0  # replies that may have been billed and never came
    unanswered: int = 0
    suffix: str = "/v1"  # of the base URL, as people write it


CASES = {
    "good": Case(script=lambda count, received: answer(received, count)),
    "choices": Case(script=at(FAULTY, two_choices), suffix="/v1/"),
    "picky": Case(script=picky, suffix="/v1/chat/completions"),
    "dropped": Case(script=at(FAULTY, lambda _: raw(body={"id": "1"}, announced=99_999)), lost=1, unanswered=1),
    "welcome": Case(script=at(FAULTY, lambda _: raw(body="<html>welcome</html>")), lost=1, unanswered=1),
    "overloaded": Case(script=at(FAULTY, lambda _: error(503, "slow down")), unanswered=1),
    "no-usage": Case(script=without_usage),
    "quota": Case(
        script=at(FAULTY, lambda _: error(429, "You exceeded it", code="insufficient_quota"), for_good=True),
        stop="the answerer gave up: the server answered 429: ",
        replies=FAULTY,
    ),
    "key": Case(
        script=at(0, lambda _: error(401, f"Incorrect API key provided: {KEY}. Find yours at …"), for_good=True),
        stop="the answerer gave up: the server answered 401: ",
        replies=0,
    ),
    "strange": Case(script=strange_replies),
}


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What all the runs of one sweep left behind."""

    folder: Path
    received: dict[str, list[Received]]
    said: str

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.folder / str(list(CASES).index(name)))

    def result(self, name: str) -> dict[str, Any]:
        text = self.run(name).result.read_text(encoding="utf-8")
        result: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
        return result


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """One command that makes a run of each case, with a key in its environment."""
    folder = tmp_path_factory.mktemp("openai")
    write_table(folder / "table.jsonl.gz", suite="smoke")
    received: dict[str, list[Received]] = {name: [] for name in CASES}

    def script(request: Received) -> Canned:
        name = request.path.split("/")[1]
        received[name].append(request)
        return CASES[name].script(len(received[name]) - 1, request)

    server = LoopbackServer()
    server.script = script
    urls = ",".join(f"{server.url}/{name}{case.suffix}" for name, case in CASES.items())
    words = [
        "evolve", "-m", "name=swept", "backend=recorded", "backend.table=table.jsonl.gz", f"seeds=['{SEED}']",
        "suite=smoke", "stop.generations=2", "evolution.lambda_=14", "answerer=openai", "answerer.model=m",
        f"answerer.base_url={urls}", "answerer.concurrency=1", "answerer.max_retries=0", "answerer.temperature=0.5",
        f"answerer.max_tokens={MAX_TOKENS}", "answerer.usd_per_million_prompt_tokens=1",
        "answerer.usd_per_million_completion_tokens=10",
    ]  # fmt: skip
    try:
        process = subprocess.run(
            [sys.executable, "-c", "from evo.cli import main; main()", *words], cwd=folder, capture_output=True,
            text=True, timeout=300, check=False, env={**os.environ, "OPENAI_API_KEY": KEY},
        )  # fmt: skip
    finally:
        server.close()
    assert process.returncode == 2, process.stderr  # the worst of all
    return Swept(folder=folder / "runs" / "swept", received=received, said=process.stdout + process.stderr)


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_where_it_can_and_says_why_where_it_cannot(swept: Swept, name: str) -> None:
    case, result = CASES[name], swept.result(name)
    exit_code = json.loads((swept.run(name).path / "exit.json").read_text())["exit_code"]
    assert exit_code == (0 if case.stop == GOOD_END else 2)  # nobody answers any more: the environment's fault
    assert result["stop_reason"].startswith(case.stop)
    assert result["generations"] == (2 if case.stop == GOOD_END else 0)
    assert (result["answerer"], result["model"]) == ("openai", "m")
    assert result["best"]["geomean"] >= result["seed"]["geomean"]
    attempts = attempts_of(swept.run(name))
    assert len(attempts) == (28 if case.stop == GOOD_END else 0)
    assert sum(attempt.outcome is Outcome.UNANSWERED for attempt in attempts) == case.unanswered
    if case.stop == GOOD_END:
        assert result["evaluations"] > 5
        assert result["best"]["geomean"] > result["seed"]["geomean"]


@pytest.mark.parametrize("name", CASES)
def test_the_spend_is_what_the_server_counted(swept: Swept, name: str) -> None:
    spend, case = swept.result(name)["spend"], CASES[name]
    with read_archive(swept.run(name)) as archive:
        replies = list(archive.replies())
    assert case.replies in (None, len(replies))
    lost_usd = sum(
        estimate_tokens(prompt_of(request)) * PROMPT_USD + MAX_TOKENS * COMPLETION_USD
        for request in swept.received[name][FAULTY : FAULTY + case.lost]
    )
    if name == "no-usage":
        assert all(reply.estimated for reply in replies)
        sent = sum(estimate_tokens(prompt_of(request)) for request in swept.received[name])
        written = sum(estimate_tokens(reply.text) for reply in replies)
        assert spend["cost_usd"] == pytest.approx(sent * PROMPT_USD + written * COMPLETION_USD)
        return
    assert (spend["prompt_tokens"], spend["completion_tokens"]) == (1000 * len(replies), 100 * len(replies))
    assert spend["cost_usd"] == pytest.approx(REPLY_USD * len(replies) + lost_usd)
    assert len(swept.received[name]) >= len(replies) + case.unanswered


def test_no_file_and_no_word_holds_the_key(swept: Swept) -> None:
    assert all(request.authorization == f"Bearer {KEY}" for requests in swept.received.values() for request in requests)
    files = [path for path in swept.folder.parent.rglob("*") if path.is_file()]
    assert len(files) > 10 * len(CASES)
    for text in (swept.said.encode(), *(path.read_bytes() for path in files)):
        assert KEY.encode() not in text
        assert KEY[:12].encode() not in text
    assert "Incorrect API key provided: [key]" in swept.result("key")["stop_reason"]


def test_what_a_server_does_not_take_is_given_up_once(swept: Swept) -> None:
    optional = [sorted({"seed", "max_tokens", "max_completion_tokens", "temperature"} & request.body.keys())
                for request in swept.received["picky"]]  # fmt: skip
    assert optional[:4] == [
        ["max_tokens", "seed", "temperature"],
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
    ]
    assert all(names == ["max_completion_tokens"] for names in optional[3:])
    assert all(request.path == "/picky/v1/chat/completions" for request in swept.received["picky"])


def test_of_two_choices_the_first_is_read(swept: Swept) -> None:
    with read_archive(swept.run("choices")) as archive:
        assert not any("never read" in reply.text for reply in archive.replies())


@pytest.mark.parametrize("number", range(len(REPLIES)), ids=[strange.name for strange in REPLIES])
def test_a_strange_reply_is_read_or_refused_and_the_run_goes_on(swept: Swept, number: int) -> None:
    outcome = REPLIES[number].outcome
    attempt = attempts_of(swept.run("strange"))[number]
    assert (attempt.number, attempt.outcome) == (number, outcome), attempt.detail
    asked = [request for request in swept.received["strange"] if request.body["seed"] == number]
    assert len(asked) == (2 if outcome is Outcome.UNREADABLE else 1)  # once more, with the reason
    if outcome is Outcome.UNREADABLE:
        assert attempt.detail in " ".join(prompt_of(asked[1]).split())
    else:
        assert prompt_of(asked[0]).endswith("Answer from this text alone: open no file, run nothing.\n")


def attempts_of(run: RunFolder) -> list[Attempt]:
    with read_archive(run) as archive:
        return recorded_attempts(archive)
