"""The three verbs for a program: the same run as by the commands."""

from pathlib import Path

import pytest
from by_files import OPTIONS, by_files, evolved, judge, left_behind, names

from evo.answerers.answerer import Reply, Usage
from evo.api import ask, evaluate, tell
from evo.settings import ConfigError
from population.archive_reader import read_archive
from population.individual import individual_id


def test_a_whole_run_without_a_file_of_a_reply(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    assert ask(run.folder.path, n=3, options=OPTIONS) == []
    waiting = tell(run.folder.path, {})
    assert (waiting.generation, waiting.prompts, waiting.ended) == (None, (), "")
    [seed] = waiting.candidates
    assert names(run.folder.pending) == ["job.json", f"{seed}.cu"]
    run.evaluate()
    for generation in (1, 2):
        prompts = ask(run.folder.path, n=3)
        assert [prompt.path.read_text(encoding="utf-8") for prompt in prompts] == [prompt.text for prompt in prompts]
        texts = run.answers()
        usage = Usage(prompt_tokens=10, completion_tokens=5, cost_usd=0.25)
        replies = {each.key: Reply(text=texts[each.path.name], model="mine", usage=usage) for each in prompts}
        first = prompts[0].key
        waiting = tell(run.folder.path, {first: replies[first]})
        assert waiting.prompts == tuple(prompts[1:])
        assert len(waiting.candidates) <= 1
        waiting = tell(run.folder.path, replies)
        assert (waiting.prompts, waiting.notes) == ((), ())
        sources = [(run.folder.pending / f"{name}.cu").read_bytes().decode("utf-8") for name in waiting.candidates]
        assert [individual_id(source) for source in sources] == list(waiting.candidates)
        assert sorted(run.evaluate()) == sorted(waiting.candidates)
        waiting = tell(run.folder.path, {})
        assert (waiting.generation, waiting.candidates, waiting.ended) == (generation, (), "")
    assert left_behind(run.folder) == left_behind(evolved(tmp_path, run.table, "stop.generations=2"))
    with read_archive(run.folder) as archive:
        assert {(reply.model, reply.estimated) for reply in archive.replies()} == {("mine", False)}
        assert archive.spend_so_far()["cost_usd"] == pytest.approx(1.5)
    assert judge(sources[0]).suite == "smoke"


def test_what_cannot_be_used_is_a_note(tmp_path: Path) -> None:
    run = by_files(tmp_path)
    ask(run.folder.path, options=OPTIONS)
    run.evaluate()
    [prompt] = ask(run.folder.path, n=1)
    unreadable = Reply(text="I would widen the tiles.", model="mine")
    waiting = tell(run.folder.path, {prompt.key: unreadable, (9, 0): unreadable})
    assert waiting.notes == ("reply 0009.md is left alone: no prompt of that name has been put",)
    [again] = waiting.prompts
    assert again.key == (0, 1)
    assert "neither edit blocks nor a whole kernel in a fence" in again.text
    assert tell(run.folder.path, {}, partial=True).generation == 1
    with read_archive(run.folder) as archive:
        assert [record.attempt for record in archive.prompts()] == [0, 1]
    assert evaluate(run.folder.path) == {}
    assert tell(run.folder.path, {}).prompts == ()


@pytest.mark.parametrize("n", [0, -1])
def test_a_bad_number_is_refused(tmp_path: Path, n: int) -> None:
    with pytest.raises(ConfigError, match=rf"n={n}: expected a whole number of at least 1"):
        ask(tmp_path / "run", n=n, options=OPTIONS)
    assert names(tmp_path) == []
