"""`evo ask`: a run is begun, its prompts are files, and asking again asks the same."""

import contextlib
from pathlib import Path

import pytest
import yaml
from by_files import OPTIONS, ByFiles, by_files, copied, evo, names
from small_search import SEED

from evo.data import kernel_path
from evo.generation_gate import questions_begun_with
from evo.mailbox_run import KNOBS_ONLY
from population.archive import open_archive
from population.archive_reader import read_archive
from population.individual import individual_id

SEED_ID = individual_id(SEED.read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path: Path) -> ByFiles:
    return by_files(tmp_path)


@pytest.fixture(scope="module")
def once_begun(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    """A run with its seed measured, and two questions put."""
    run = by_files(tmp_path_factory.mktemp("ask"))
    run.begin()
    run.evaluate()
    run.ask("n=2")
    return run


@pytest.fixture
def begun(once_begun: ByFiles, tmp_path: Path) -> ByFiles:
    return copied(once_begun, tmp_path)


def test_a_run_begins_with_its_seed_which_must_be_measured_first(run: ByFiles) -> None:
    said = run.begin("n=2")
    assert said.code == 0
    folder = run.folder
    assert f"the seed: 1 candidate waits in {folder.pending}: evo evaluate {folder.path}, then: evo ask" in said.out
    assert names(folder.pending) == ["job.json", f"{SEED_ID}.cu"]
    assert names(folder.outbox) == []
    assert run.ask().out == said.out
    run.evaluate()
    assert run.ask("n=2").code == 0
    assert names(folder.outbox) == ["0000.md", "0001.md"]
    assert names(folder.pending) == ["job.json"]


def test_its_options_are_kept_where_hydra_keeps_them(run: ByFiles) -> None:
    run.begin("rng_seed=7")
    kept = run.folder.path / ".hydra"
    words = yaml.safe_load((kept / "overrides.yaml").read_text(encoding="utf-8"))
    assert words == ["answerer=mailbox", *OPTIONS, "answerer.model=me", "rng_seed=7"]
    config = yaml.safe_load((kept / "config.yaml").read_text(encoding="utf-8"))
    assert (config["rng_seed"], config["answerer"]["kind"], config["suite"]["name"]) == (7, "mailbox", "smoke")


def test_asking_again_puts_the_same_and_adds_nothing(begun: ByFiles) -> None:
    folder = begun.folder
    prompts = {path.name: path.read_text(encoding="utf-8") for path in folder.outbox.iterdir()}
    times = {path.name: path.stat().st_mtime_ns for path in folder.outbox.iterdir()}
    said = begun.ask("n=5")
    assert "note: this generation was begun with n=2; n=5 would count for the next one" in said.out
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.outbox.iterdir()} == prompts
    assert {path.name: path.stat().st_mtime_ns for path in folder.outbox.iterdir()} == times
    with read_archive(folder) as archive:
        assert questions_begun_with(archive, 1) == 2
        assert [(prompt.number, prompt.attempt) for prompt in archive.prompts()] == [(0, 0), (1, 0)]
        assert {f"{prompt.number:04d}.md": prompt.text for prompt in archive.prompts()} == prompts


def test_a_prompt_that_was_lost_or_spoilt_is_written_again(begun: ByFiles) -> None:
    prompts = {path.name: path.read_text(encoding="utf-8") for path in begun.folder.outbox.iterdir()}
    (begun.folder.outbox / "0000.md").unlink()
    (begun.folder.outbox / "0001.md").write_text("half", encoding="utf-8")
    begun.ask()
    assert {path.name: path.read_text(encoding="utf-8") for path in begun.folder.outbox.iterdir()} == prompts


def test_each_generation_may_have_another_number_of_questions(begun: ByFiles) -> None:
    begun.answer()
    begun.tell()
    begun.evaluate()
    said = begun.ask()  # as many as evolution.lambda_ says; asking takes in what was measured, too
    assert "3 prompts wait" in said.out
    assert names(begun.folder.outbox) == ["0002.md", "0003.md", "0004.md"]
    with read_archive(begun.folder) as archive:
        assert [questions_begun_with(archive, generation) for generation in (1, 2, 3)] == [2, 3, None]


def test_a_run_that_is_there_is_told_what_its_suite_must_be(begun: ByFiles) -> None:
    said = begun.ask("suite=auto")
    settled = "suite=auto is settled where candidates are measured; name one at evo ask, as in suite=core26"
    assert (said.code, said.errors) == (2, f"evo: {settled}\n")


def test_a_persons_question_waits_for_the_next_generation_and_comes_first_there(begun: ByFiles) -> None:
    question = "How many rows does a block really need?"
    assert evo("questions", "add", str(begun.folder.path), question).code == 0
    begun.answer()
    begun.tell()
    begun.evaluate()
    begun.ask()
    begun.ask()
    first, second = ((begun.folder.outbox / name).read_text(encoding="utf-8") for name in ("0002.md", "0003.md"))
    assert f"Question: {question}" in first
    assert f"Question: {question}" not in second
    with read_archive(begun.folder) as archive:
        recorded = archive.question(2)
    assert recorded is not None
    assert (recorded.origin, recorded.text) == ("person", question)


def test_asking_reads_no_reply(begun: ByFiles) -> None:
    begun.answer()
    assert "2 prompts wait" in begun.ask().out
    with read_archive(begun.folder) as archive:
        assert list(archive.replies()) == []


def test_a_search_that_is_over_puts_nothing_and_exits_with_1(begun: ByFiles) -> None:
    begun.answer()
    begun.tell()
    begun.evaluate()
    said = begun.ask("stop.generations=1")
    assert said.code == 1
    assert "the search is over: generation budget reached: 1 of 1" in said.out
    assert names(begun.folder.outbox) == []
    assert begun.ask().code == 1  # the option was kept
    assert begun.ask("stop.generations=2").code == 0


def test_a_beginning_that_was_cut_off_is_finished(run: ByFiles) -> None:
    run.folder.kernels.mkdir(parents=True)
    (run.folder.path / ".hydra").mkdir()
    run.folder.lock.touch()
    run.folder.archive.touch()  # made, and not yet filled
    (run.folder.pending).mkdir()
    (run.folder.pending / "job.json.77.tmp").write_text("{", encoding="utf-8")
    assert run.begin().code == 0
    assert run.evaluate() == [SEED_ID]
    assert "3 prompts wait" in run.ask().out


def test_a_bare_name_is_a_run_among_the_runs(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert evo("ask", "first", *OPTIONS).code == 0
        assert (tmp_path / "runs" / "first" / "archive.sqlite").is_file()
        assert "the seed: 1 candidate waits in runs/first/pending" in evo("ask", "first").out
        assert evo("tell", "runs/first").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "ask: no run named; expected evo ask RUN"),
        (["suite=smoke"], "ask: no run named"),
        (["RUN", "n=0", "suite=smoke"], "ask: n=0: expected a whole number of at least 1"),
        (["RUN", "n=-3", "suite=smoke"], "ask: n=-3: expected a whole number"),
        (["RUN", "n=2.5", "suite=smoke"], "ask: n=2.5: expected a whole number"),
        (["RUN", "n=", "suite=smoke"], "ask: n=: expected a whole number"),
        (["RUN", "n=1,2", "suite=smoke"], "ask: n=1,2: expected a whole number"),
        (["RUN", "--fast"], "ask: '--fast' is no option; expected key=value"),
        (["RUN", "suit=smoke"], "suit is no option; did you mean suite?"),
        (["RUN", "suite=smoke,core26"], "several values for one key"),
        (["RUN"], "new: no run of that name; expected one that is there, or, to begin one, suite=… and seeds=…, as in"),
        (["RUN", "n=3"], "new: no run of that name; "),
        (["RUN", "suite=smoke", "resume=other"], "resume=other: the run is named without a key; leave this out"),
        ([" ", "suite=smoke"], "no run named; expected the folder of one"),
        (["RUN", "suite=smoke", "answerer=openai", "answerer.model=m"], "answerer=openai: a run by files is answered"),
        (["RUN", "suite=smoke", "seeds=[nothing]"], "seeds: 'nothing' cannot be read"),
        (["RUN", "suite=smoke", "seeds=[naive]", "questions.files=[no.yaml]"], "no.yaml: cannot be read"),
        (["RUN", "suite=smoke"], "is chosen where candidates are measured; name it at evo ask, as in seeds=[mma]"),
        (["RUN", "suite=smoke", "backend=host"], "name it at evo ask, as in seeds=[tiled]"),
        (["RUN", "suite=smoke", "backend=host", "seeds=[tiled,mma]"],
         "seeds: mma targets sm_80, and the host backend runs portable kernels only; name such a one, as in seeds=["),
        (["RUN", "suite=smoke", "backend=host", "seeds=[hopper]"], "seeds: hopper targets sm_90a, and the host"),
    ],
)
def test_a_bad_command_line_gets_one_line_and_leaves_no_folder(tmp_path: Path, words: list[str], said: str) -> None:
    told = evo("ask", *[str(tmp_path / "new") if word == "RUN" else word for word in words])
    assert (told.code, told.out) == (2, "")
    assert told.errors.count("\n") == 1
    assert said in told.errors
    assert names(tmp_path) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("dear diary", encoding="utf-8")
    said = evo("ask", str(tmp_path / "notes"), *OPTIONS)
    assert (said.code, "no run, and not empty (diary.txt); name another folder" in said.errors) == (2, True)
    said = evo("ask", str(tmp_path / "notes" / "diary.txt"), *OPTIONS)
    assert (said.code, "this is a file; expected a run's folder" in said.errors) == (2, True)
    assert names(tmp_path / "notes") == ["diary.txt"]


def test_other_settings_make_another_run_and_are_not_kept(begun: ByFiles) -> None:
    said = begun.ask("selection=lexicase")
    assert said.code == 2
    assert "this run began with other settings: selection.kind was 'tournament', now 'lexicase'" in said.errors
    assert begun.ask().code == 0


def test_a_run_that_began_with_other_seeds_needs_another_name(run: ByFiles) -> None:
    run.begin()
    said = run.ask("seeds=[tiled]")
    assert said.code == 2
    assert said.errors.startswith(f"evo: seeds: {kernel_path('tiled')} is not what the run began with: expected")
    assert said.errors.endswith("; to search from it as it is, begin a run of another name\n")
    assert "the seed: 1 candidate waits" in run.ask().out
    run.evaluate()
    run.ask()
    said = run.ask("seeds=[tiled]")
    assert (said.code, "now ['tiled']; start a new run" in said.errors) == (2, True)


def test_a_seed_whose_text_has_changed_is_another(tmp_path: Path) -> None:
    seed = tmp_path / "mine.cu"
    seed.write_text(SEED.read_text(encoding="utf-8"), encoding="utf-8")
    run = by_files(tmp_path)
    run.begin(f"seeds=['{seed}']")
    seed.write_text(SEED.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
    said = run.ask()
    before, now = individual_id(SEED.read_text(encoding="utf-8")), individual_id(seed.read_text(encoding="utf-8"))
    assert said.code == 2
    assert said.errors == (
        f"evo: seeds: {seed} is not what the run began with: expected the text of {before}, found {now}; if it was "
        f"edited, copy {before}.cu from the run's kernels/ over it to go on; to search from it as it is, begin a run "
        "of another name\n"
    )
    seed.write_bytes((run.folder.kernels / f"{before}.cu").read_bytes())
    assert "the seed: 1 candidate waits" in run.ask().out


def test_what_the_host_backend_does_not_run_is_said_once_when_a_run_begins(tmp_path: Path) -> None:
    words = ("backend=host", "suite=smoke", "seeds=[tiled]")
    note = f"note: {KNOBS_ONLY}\n"
    assert "INVALID for good" in note
    assert "backend.run_model_code=true" in note
    first = str(tmp_path / "first")
    assert note in evo("ask", first, *words).out
    assert note not in evo("ask", first).out
    assert note not in evo("ask", str(tmp_path / "second"), *words, "backend.run_model_code=true").out


def test_the_command_that_measures_carries_the_word_that_it_needs(run: ByFiles) -> None:
    folder = run.folder.path
    assert f"evo evaluate {folder}, then: evo ask {folder}\n" in run.begin().out
    word = "backend.run_model_code=true"
    assert f"evo evaluate {folder} {word}, then: evo ask {folder}\n" in run.ask(word).out
    run.evaluate()
    run.ask("n=3")
    run.answer("0000.md")
    assert f"can be measured meanwhile: evo evaluate {folder} {word}\n" in run.tell().out
    run.answer()
    assert f"evo evaluate {folder} {word}, then: evo tell {folder}\n" in run.tell().out


def test_a_run_that_another_process_writes_is_waited_for(begun: ByFiles) -> None:
    with open_archive(begun.folder):
        said = begun.ask()
    assert said.code == 2
    assert "is being written by pid" in said.errors


def test_a_seed_that_fails_ends_the_search(tmp_path: Path) -> None:
    seed = tmp_path / "failing.cu"
    text = SEED.read_text(encoding="utf-8")
    seed.write_text(text.replace("UNROLL = { value = 2", "UNROLL = { value = 8").replace("WIDTH = { value = 1",
                    "WIDTH = { value = 4"), encoding="utf-8")  # fmt: skip
    run = by_files(tmp_path)
    run.begin(f"seeds=['{seed}']")
    run.evaluate()
    said = run.ask()
    assert said.code == 1
    assert "no seed passed, so there is nothing to ask about (INCORRECT: o differs" in said.out
