"""`evo tell`: replies become candidates, measurements are taken in, and nothing depends on the order or on repeats."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import OPTIONS, ByFiles, Said, by_files, copied, evo, evolved, judge, left_behind, names
from rich.console import Console
from small_search import MACHINE, SEED

from evo.attempt_events import recorded_attempts
from evo.history import Outcome
from evo.measured import write_measured
from evo.pending import pending_sources
from evo.run import run_search
from evo.run_options import join_options, keep_options
from evo.settings import ConfigError, compose_config
from fitness.evaluation import Evaluation
from fitness.manifest import with_knobs
from population.archive_reader import read_archive
from population.atomic_file import parse_json

UNREADABLE = "I would widen the tiles."


@pytest.fixture(scope="module")
def once_asked(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    """A run with its seed measured, and three questions put."""
    run = by_files(tmp_path_factory.mktemp("tell"))
    run.begin()
    run.evaluate()
    run.ask("n=3")
    return run


@pytest.fixture
def asked(once_asked: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_asked, tmp_path)


@pytest.fixture
def unnamed(tmp_path: Path) -> ByFiles:
    """The same, begun without a word on who answers."""
    run = by_files(tmp_path, "unnamed")
    run.begin("answerer.model=null")
    run.evaluate()
    run.ask("n=3")
    return run


def reply(run: ByFiles, name: str, text: str) -> None:
    (run.folder.inbox / name).write_text(text, encoding="utf-8")


def outcomes(run: ByFiles) -> list[Outcome]:
    with read_archive(run.folder) as archive:
        return [attempt.outcome for attempt in recorded_attempts(archive)]


def test_a_run_by_files_is_the_run_that_evolve_makes(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.whole_run(2)
    wanted, found = left_behind(evolved(tmp_path, run.table, "stop.generations=2")), left_behind(run.folder)
    assert len(found["replies"]) == 6
    assert len(found["evaluations"]) == 7
    assert len(found["checkpoint"]["population"]) == 3
    assert found == wanted
    result = parse_json(run.folder.result.read_text(encoding="utf-8"))
    assert (result["answerer"], result["model"]) == ("mailbox", "me")
    assert (result["generations"], result["evaluations"]) == (2, 7)
    assert result["stop_reason"] == "generation 2 is complete"


def test_the_budget_ends_it_where_it_ends_evolve(asked: ByFiles, tmp_path: Path) -> None:
    asked.ask("stop.evaluations=3")
    asked.answer()
    assert "2 candidates wait in" in asked.tell().out
    asked.evaluate()
    assert "the search is over: evaluation budget reached: 3 of 3" in asked.tell().out
    assert names(asked.folder.pending) == ["job.json"]
    assert left_behind(asked.folder) == left_behind(evolved(tmp_path, asked.table, "stop.evaluations=3"))
    assert "the search is over: evaluation budget reached: 3 of 3" in asked.tell().out


def test_the_order_in_which_things_come_and_repeats_change_nothing(asked: ByFiles, once_asked: ByFiles) -> None:
    straight = copied(once_asked, asked.folder.path / "straight")
    straight.answer()
    straight.tell()
    straight.evaluate()
    straight.tell()

    asked.answer("0002.md")
    assert "2 prompts wait" in asked.tell().out
    assert len(asked.evaluate()) == 1  # what the early reply led to is measured meanwhile
    asked.answer("0001.md")
    asked.tell()
    assert "2 prompts wait" not in asked.tell().out
    assert len(asked.evaluate()) == 1
    asked.answer("0000.md")
    asked.tell()
    assert "1 candidate waits" in asked.tell().out
    asked.evaluate()
    asked.tell()
    assert "generation 1 is complete" in asked.tell().out
    assert left_behind(asked.folder) == left_behind(straight.folder)


def test_what_is_done_leaves_the_outbox_and_pending(asked: ByFiles) -> None:
    asked.answer("0001.md")
    said = asked.tell()
    assert names(asked.folder.outbox) == ["0000.md", "0002.md"]
    assert "2 prompts wait in" in said.out
    assert "1 candidate waits in" in said.out
    assert len(names(asked.folder.pending)) == 2
    asked.evaluate()
    assert "can be measured meanwhile" not in asked.tell().out
    asked.answer()
    asked.tell()
    assert names(asked.folder.outbox) == []
    assert len(names(asked.folder.pending)) == 3  # what was measured meanwhile is not measured again
    asked.evaluate()
    asked.tell()
    assert names(asked.folder.pending) == ["job.json"]


def test_a_reply_that_cannot_be_read_is_asked_for_once_more(asked: ByFiles) -> None:
    asked.answer("0000.md", "0001.md")
    reply(asked, "0002.md", UNREADABLE)
    said = asked.tell()
    assert "1 prompt waits in" in said.out
    assert names(asked.folder.outbox) == ["0002-1.md"]
    again = (asked.folder.outbox / "0002-1.md").read_text(encoding="utf-8")
    assert "the reply holds neither edit blocks nor a whole kernel in a fence" in again
    reply(asked, "0002-1.md", UNREADABLE)
    assert "candidates wait in" in asked.tell().out
    asked.evaluate()
    asked.tell()
    assert outcomes(asked) == [Outcome.CHILD, Outcome.CHILD, Outcome.UNREADABLE]


def test_partial_goes_on_without_the_replies_that_are_missing(asked: ByFiles) -> None:
    asked.answer("0000.md")
    reply(asked, "0001.md", UNREADABLE)
    said = asked.tell("partial=true")
    assert "1 candidate waits in" in said.out
    assert names(asked.folder.outbox) == []
    asked.evaluate()
    reply(asked, "0002.md", "too late")
    said = asked.tell()
    assert "note: reply 0002.md came too late: the generation went on without it" in said.out
    assert "generation 1 is complete" in said.out
    assert outcomes(asked) == [Outcome.CHILD, Outcome.UNANSWERED, Outcome.UNANSWERED]


def test_partial_with_no_reply_at_all_is_a_barren_generation(asked: ByFiles) -> None:
    said = asked.tell("partial=true")
    assert "generation 1 is complete" in said.out
    assert outcomes(asked) == [Outcome.UNANSWERED] * 3
    assert "3 prompts wait" in asked.ask().out
    assert names(asked.folder.outbox) == ["0003.md", "0004.md", "0005.md"]


def test_files_that_are_no_replies_are_named_and_left(asked: ByFiles) -> None:
    strangers = ("7.md", "0001.txt", "00001.md", "0001-0.md", "notes.md", "0002 (1).md")
    quiet = (".0001.md.swp", "0001.md.tmp", "0001.md.part", "0001.md~", ".DS_Store")
    for name in (*strangers, *quiet):
        reply(asked, name, "x")
    reply(asked, "0099.md", "to nothing")
    (asked.folder.inbox / "0000.md").mkdir()
    said = asked.tell().out
    for name in strangers:
        assert f"note: {asked.folder.inbox / name} is left alone" in said
    for name in quiet:
        assert name not in said
    assert "note: reply 0099.md is left alone: no prompt of that name has been put" in said
    assert f"note: {asked.folder.inbox / '0000.md'} is no file" in said
    assert "3 prompts wait" in said
    assert len(names(asked.folder.inbox)) == 13


def test_an_empty_file_is_a_reply_that_is_being_written(asked: ByFiles) -> None:
    reply(asked, "0000.md", "")
    reply(asked, "0001.md", " \n")
    (asked.folder.inbox / "0002.md").write_bytes("x".encode("utf-16"))
    said = asked.tell().out
    assert "0000.md is empty, and counts as not there yet" in said
    assert "0001.md is empty" in said
    assert "0002.md is not UTF-8" in said
    assert "3 prompts wait" in said
    with read_archive(asked.folder) as archive:
        assert list(archive.replies()) == []


def test_the_reply_that_was_told_first_counts(asked: ByFiles) -> None:
    asked.answer("0000.md")
    asked.tell()
    reply(asked, "0000.md", UNREADABLE)
    assert "note: reply 0000.md differs from the one that was told first, which counts" in asked.tell().out
    with read_archive(asked.folder) as archive:
        recorded = archive.reply(0, 0)
    assert recorded is not None
    assert recorded.text != UNREADABLE


def test_who_answered_and_with_what_at_hand_is_kept(asked: ByFiles) -> None:
    asked.answer("0000.md")
    asked.tell()
    asked.answer("0001.md")
    asked.tell("model=another", "used_tools=true")
    with read_archive(asked.folder) as archive:
        found = [(each.number, each.model, each.used_tools, each.estimated) for each in archive.replies()]
    assert found == [(0, "me", False, True), (1, "another", True, True)]


def test_nobody_answers_without_a_name(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.begin("answerer.model=null")
    run.evaluate()
    run.ask()
    assert run.tell().code == 0
    run.answer()
    said = run.tell()
    assert (said.code, "tell: who answered? say so by model=NAME here" in said.errors) == (2, True)
    assert "3 candidates wait" in run.tell("model=m").out


def test_the_next_command_that_is_named_works_without_a_model_of_the_run(unnamed: ByFiles) -> None:
    then = f"then: evo tell {unnamed.folder.path} model=NAME\n"
    assert then in unnamed.ask().out
    unnamed.answer("0000.md")
    assert then in unnamed.tell("model=NAME").out
    assert f"then: evo tell {unnamed.folder.path}\n" in unnamed.ask("answerer.model=m").out


def test_nothing_new_needs_no_name(unnamed: ByFiles) -> None:
    unnamed.answer("0000.md")
    unnamed.tell("model=m", "partial=true")
    reply(unnamed, "0001.md", UNREADABLE)  # too late
    reply(unnamed, "0002.md", "")
    said = unnamed.tell()
    assert (said.code, "reply 0001.md came too late" in said.out) == (0, True)
    unnamed.evaluate()
    assert "generation 1 is complete" in unnamed.tell().out


@pytest.mark.parametrize("words", [(), ("partial=true",)])
def test_a_file_under_a_name_that_no_prompt_has_needs_no_name_either(unnamed: ByFiles, words: tuple[str, ...]) -> None:
    reply(unnamed, "0099.md", UNREADABLE)
    said = unnamed.tell(*words)
    assert (said.code, said.errors) == (0, "")
    assert "note: reply 0099.md is left alone: no prompt of that name has been put" in said.out


def test_a_model_can_be_named_later_where_none_was(unnamed: ByFiles) -> None:
    by_mail = ("answerer=mailbox", "stop.generations=1")
    with pytest.raises(ConfigError, match=r"answerer\.model is not set: say who answers, as in answerer\.model="):
        search_with(unnamed, *by_mail)
    unnamed.answer("0000.md")
    unnamed.tell("model=first")
    unnamed.answer()
    assert search_with(unnamed, *by_mail, "answerer.model=second") == "generation budget reached: 1 of 1"
    with read_archive(unnamed.folder) as archive:
        assert [each.model for each in archive.replies()] == ["first", "second", "second"]
    assert "3 prompts wait" in unnamed.ask("answerer.model=second").out
    unnamed.answer()
    assert "3 candidates wait" in unnamed.tell().out


def test_a_model_that_was_named_stays(asked: ByFiles) -> None:
    said = asked.ask("answerer.model=another")
    assert (said.code, "answerer.model was 'me', now 'another'" in said.errors) == (2, True)


def measured_as(run: ByFiles, **change: str) -> Said:
    """Measure what waits, as if elsewhere, and tell."""
    for source in pending_sources(run.folder.pending)[0].values():
        evaluation = judge(source)
        write_measured(
            run.folder.measured, source, replace(evaluation, environment=replace(evaluation.environment, **change))
        )
    return run.tell()


def test_a_measurement_of_another_device_is_refused(asked: ByFiles) -> None:
    asked.answer()
    asked.tell()
    said = measured_as(asked, device="another device", baseline_version="3.0")
    refusal = "the run began elsewhere: device was test device, now another device, baseline version was 2.0, now 3.0"
    assert said.out.count(refusal) == 3
    assert "3 candidates wait in" in said.out
    assert "generation 1 is complete" in measured_as(asked, driver="a newer one").out


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "is no evaluation, or not whole"),
        (lambda _text: "", "is no evaluation, or not whole"),
        (lambda _text: "[1, 2]", "is no evaluation, or not whole"),
        (lambda text: text.replace('"geomean": 1', '"geomean": NaN, "x": 1'), "NaN is no JSON number"),
        (lambda text: text.replace('"suite": "smoke"', '"suite": "other"'), "it was measured on the suite other"),
        (lambda _text: json.dumps(judge(SEED.read_text(encoding="utf-8")).to_json()), "it is of another source"),
    ],
)
def test_a_measurement_that_cannot_be_used_is_named_and_made_again(asked: ByFiles, spoil, said: str) -> None:
    asked.answer("0000.md")
    asked.tell("partial=true")
    [name] = asked.evaluate()
    path = asked.folder.measured / f"{name}.json"
    whole = path.read_text(encoding="utf-8")
    path.write_text(spoil(whole), encoding="utf-8")
    told = asked.tell().out
    assert f"note: {path}" in told
    assert said in told
    assert "1 candidate waits in" in told
    assert asked.evaluate() == [name]
    assert path.read_text(encoding="utf-8") == whole
    assert "generation 1 is complete" in asked.tell().out


def test_a_candidate_known_before_is_not_measured_again(asked: ByFiles) -> None:
    seed = SEED.read_text(encoding="utf-8")
    for number in range(3):
        reply(asked, f"{number:04d}.md", f"Change: two stages\n\n```cuda\n{with_knobs(seed, {'STAGES': 2})}```\n")
    assert "1 candidate waits in" in asked.tell().out
    [name] = asked.evaluate()
    asked.tell()
    assert outcomes(asked) == [Outcome.CHILD, Outcome.DUPLICATE, Outcome.DUPLICATE]
    asked.ask("n=1")
    reply(asked, "0003.md", f"```cuda\n{with_knobs(seed, {'STAGES': 2, 'WIDTH': 1})}```\n")
    assert "generation 2 is complete" in asked.tell().out
    assert (asked.folder.measured / f"{name}.json").exists()


def test_telling_twice_adds_nothing(asked: ByFiles) -> None:
    asked.answer()
    asked.tell()
    asked.evaluate()
    asked.tell()
    before = left_behind(asked.folder)
    result = asked.folder.result.read_bytes()
    assert "generation 1 is complete; for the next questions: evo ask" in asked.tell().out
    assert left_behind(asked.folder) == before
    assert asked.folder.result.read_bytes() == result


def search_with(run: ByFiles, *words: str) -> str:
    """What `evo evolve` does with the run's folder; why it stopped."""
    options = [*OPTIONS, "backend=recorded", f"backend.table='{run.table}'", *words]
    outcome = run_search(compose_config(options), MACHINE, run.folder, Console(file=io.StringIO()))
    return str(outcome.result["stop_reason"])


def test_evolve_can_be_answered_by_files_and_ask_and_tell_can_take_over(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    run.folder.path.mkdir()
    by_mail = ("answerer=mailbox", "answerer.model=me")
    assert search_with(run, *by_mail) == "waiting for replies to outbox/0000.md and 2 more"
    run.folder.inbox.mkdir()
    run.answer()
    assert search_with(run, *by_mail) == "waiting for replies to outbox/0003.md and 2 more"
    keep_options(run.folder, join_options([*OPTIONS, *by_mail]))
    run.answer()
    run.tell()
    run.evaluate()
    assert "generation 2 is complete" in run.tell().out
    wanted = left_behind(evolved(tmp_path, run.table, "stop.generations=2"))
    assert left_behind(run.folder) == wanted


def test_evolve_goes_on_with_a_run_by_files_but_not_with_another_answerer(asked: ByFiles) -> None:
    with pytest.raises(ConfigError, match=r"answerer.kind was 'mailbox', now 'offline'"):
        search_with(asked)
    asked.answer()
    assert search_with(asked, "answerer=mailbox", "answerer.model=me", "stop.generations=1") == (
        "generation budget reached: 1 of 1"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "tell: no run named; expected evo tell RUN"),
        (["partial=true"], "tell: no run named"),
        (["RUN", "partial=yes"], "tell: partial=yes: expected true or false"),
        (["RUN", "used_tools="], "tell: used_tools=: expected true or false"),
        (["RUN", "n=3"], "tell: 'n=3' is no option; expected evo tell RUN"),
        (["RUN", "--all"], "tell: '--all' is no option"),
        (["nowhere"], "nowhere: no such run; expected the folder of a run"),
    ],
)
def test_a_bad_command_line_gets_one_line(asked: ByFiles, words: list[str], said: str) -> None:
    told = evo("tell", *[str(asked.folder.path) if word == "RUN" else word for word in words])
    assert (told.code, told.out, told.errors.count("\n")) == (2, "", 1)
    assert said in told.errors


def test_every_step_can_be_cut_off_anywhere_and_repeated(tmp_path: Path) -> None:
    program = Path(__file__).parent / "cut_steps.py"
    command = [sys.executable, str(program), str(tmp_path)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["differences"] == []
    assert found["cuts"] > 40
    files = {"open .tmp", "os.rename .tmp", "os.remove .md", "os.remove .cu"}
    assert files | {"after record_reply", "after record_evaluation", "after a transaction"} <= set(found["kinds"])


def test_an_evaluation_is_what_it_says(asked: ByFiles) -> None:
    asked.answer()
    asked.tell()
    for name in asked.evaluate():
        record = parse_json((asked.folder.measured / f"{name}.json").read_text(encoding="utf-8"))
        source = (asked.folder.pending / f"{name}.cu").read_bytes().decode("utf-8")
        assert Evaluation.from_json(record) == judge(source)
