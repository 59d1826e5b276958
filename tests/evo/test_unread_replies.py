"""A reply that came and cannot be read is told as that, and not as if none had come."""

from pathlib import Path

import pytest
from by_files import ByFiles, by_files, evo

from evo.trace.trace import read_trace

NO_KERNEL = "the reply holds neither edit blocks nor a whole kernel in a fence"
GONE_ON = "no reply came (the generation was finished without it)"


@pytest.fixture
def asked(tmp_path: Path) -> ByFiles:
    run = by_files(tmp_path)
    run.begin()
    run.evaluate()
    run.ask("n=3")
    run.answer("0000.md")
    return run


def lines_on(number: int, said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith(f"question {number}: ")]


def test_what_was_wrong_with_it_is_told_beside_the_prompt_that_asks_once_more(asked: ByFiles) -> None:
    (asked.folder.inbox / "0001.md").write_text("I would widen the tiles.", encoding="utf-8")
    said = asked.tell().out.splitlines()
    assert [line for line in said if "cannot be read" in line] == [
        f"the reply 0001.md came and cannot be read: {NO_KERNEL}; 0001-1.md asks once more"
    ]
    assert any(line.endswith("outbox: 0001-1.md, 0002.md") for line in said)


def test_a_second_one_that_cannot_be_read_is_told_at_once_until_the_generation_is_complete(asked: ByFiles) -> None:
    (asked.folder.inbox / "0001.md").write_text("I would widen the tiles.", encoding="utf-8")
    asked.tell()
    (asked.folder.inbox / "0001-1.md").write_text("still none", encoding="utf-8")
    line = f"note: the reply 0001-1.md came and cannot be read: {NO_KERNEL}; it is not asked for again"
    said = asked.tell().out.splitlines()
    assert said.count(line) == 1
    assert any(each.endswith("outbox: 0002.md") for each in said)
    asked.answer("0002.md")
    assert asked.tell().out.splitlines().count(line) == 1  # now the candidates alone are waited for
    asked.evaluate()
    complete = asked.tell().out
    assert (line in complete, lines_on(1, complete)) == (False, [f"question 1: unreadable: {NO_KERNEL}"])


def test_a_second_one_that_can_be_read_is_told_of_no_more(asked: ByFiles) -> None:
    (asked.folder.inbox / "0001.md").write_text("I would widen the tiles.", encoding="utf-8")
    asked.tell()
    asked.answer("0001-1.md")
    assert "cannot be read" not in asked.tell().out


def test_a_generation_that_goes_on_without_a_second_reply_tells_of_the_first(asked: ByFiles) -> None:
    (asked.folder.inbox / "0001.md").write_text("I would widen the tiles.", encoding="utf-8")
    asked.tell("partial=true")
    asked.evaluate()
    said = asked.tell().out
    assert lines_on(1, said) == [
        f"question 1: unanswered: the reply that came could not be read: {NO_KERNEL}; asked once more: {GONE_ON}"
    ]
    assert lines_on(2, said) == [f"question 2: unanswered: {GONE_ON}"]


def test_a_file_that_is_no_text_is_told_when_the_generation_goes_on_without_it(asked: ByFiles, tmp_path: Path) -> None:
    (asked.folder.inbox / "0001.md").write_bytes("x".encode("utf-16"))
    assert "0001.md is not UTF-8" in asked.tell("partial=true").out
    asked.evaluate()
    [line] = lines_on(1, asked.tell().out)
    came = f"question 1: unanswered: a reply came that could not be read: {asked.folder.inbox / '0001.md'} is not UTF-8"
    assert line.startswith(came)
    trace = tmp_path / "trace.jsonl"
    assert evo("trace", "export", str(asked.folder.path), "--out", str(trace)).code == 0
    assert [event.key for event in read_trace(trace).events if event.kind == "given_up"] == ["0001.md", "0002.md"]
