"""`evo questions`: what a run's questions brought, a person's question to a running search, and the way into a bank."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from by_files import Said, evo, names
from small_search import KnobJudge, run_part, small_config, snapshot

from evo.added_questions import add_question, questions_taken_in
from evo.attempt_events import recorded_attempts
from evo.dropped_files import dropped_files
from evo.history import Outcome
from evo.question_records import bank_entries, promotions, question_rows
from evo.stop import StopSearch
from fitness.evaluation import Evaluation
from population.archive import open_archive
from population.archive_reader import read_archive
from population.checkpoint import load_newest
from population.run_folder import RunFolder, create_run_folder
from questions.bank import load_bank, shipped_bank_path
from questions.personal import personal_question
from questions.question import Layer

ROWS = personal_question("How many rows does a block really need?", layer=Layer.LAUNCH)
LOADS = personal_question("Which load is waited for longest?", layer=Layer.MEMORY)


class InterruptedJudge(KnobJudge):
    """Ends the search at its n-th evaluation."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        if len(self.judged) + len(sources) >= self.at:
            raise StopSearch("interrupted")
        return super().evaluate_all(sources, on_done)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A search of four generations that was put one person's question twice and another once."""
    folder = create_run_folder(tmp_path_factory.mktemp("questions"), "run")
    for question in (ROWS, LOADS):
        add_question(folder, question)
    run_part(small_config(generations=2), folder)
    add_question(folder, ROWS)
    run_part(small_config(generations=4), folder)
    return folder


def asked(folder: RunFolder) -> list[tuple[int, str, str]]:
    with read_archive(folder) as archive:
        return [(record.number, record.question_id, record.origin) for record in archive.questions()]


def test_a_persons_question_is_asked_first_credited_and_asked_again(finished: RunFolder) -> None:
    people = [(number, question) for number, question, origin in asked(finished) if origin == "person"]
    assert people == [(0, ROWS.id), (1, LOADS.id), (8, ROWS.id)]
    loaded = load_newest(finished.checkpoints)
    assert loaded is not None
    tallies = loaded.checkpoint.sampler["tallies"]
    assert [tallies[question.id]["credited"] for question in (ROWS, LOADS)] == [2, 1]
    with read_archive(finished) as archive:
        assert [(each.number, each.question) for each in questions_taken_in(archive)] == [
            (0, ROWS), (0, LOADS), (8, ROWS),
        ]  # fmt: skip
        prompt = archive.prompt(0, 0)
    assert prompt is not None
    assert f"Question: {ROWS.text}" in prompt.text


def test_one_that_is_no_text_is_refused(folder: RunFolder) -> None:
    run_part(small_config(generations=0), folder)
    said = evo("questions", "add", str(folder.path), "Which \udcff?")
    assert (said.code, said.errors) == (2, "evo: questions add: the question is not UTF-8 text\n")
    assert dropped_files(folder.questions) == []


def test_one_can_be_added_while_another_process_writes(folder: RunFolder) -> None:
    run_part(small_config(generations=0), folder)
    with open_archive(folder):
        said = evo("questions", "add", str(folder.path), ROWS.text, "layer=launch")
    assert (said.code, said.errors) == (0, "")
    assert f"{ROWS.id} is asked first when the run puts" in said.out
    [path] = dropped_files(folder.questions)
    assert str(path) in said.out
    run_part(small_config(generations=1), folder)
    assert asked(folder)[0] == (0, ROWS.id, "person")


def test_a_generation_made_again_asks_it_at_the_same_mutation(tmp_path: Path) -> None:
    runs = [create_run_folder(tmp_path, name) for name in ("whole", "interrupted")]
    for run in runs:
        add_question(run, ROWS)
    run_part(small_config(generations=2), runs[0])
    assert run_part(small_config(generations=2), runs[1], InterruptedJudge(at=3)).reason == "interrupted"
    first = asked(runs[1])
    assert first[0] == (0, ROWS.id, "person")
    late = add_question(runs[1], LOADS)  # between the interruption and the resume: too late for what was asked
    assert run_part(small_config(generations=1), runs[1]).reason == "generation budget reached: 1 of 1"
    assert asked(runs[1]) == first
    late.unlink()
    run_part(small_config(generations=2), runs[1])
    assert snapshot(runs[1]) == snapshot(runs[0])


def test_a_question_that_cannot_be_read_is_passed_over(folder: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    folder.questions.mkdir()
    (folder.questions / "0-half.json").write_text('{"id": "person-', encoding="utf-8")
    (folder.questions / "1-other.json").write_text("[1]", encoding="utf-8")
    (folder.questions / "2-left.json.77.tmp").write_text("{", encoding="utf-8")
    add_question(folder, LOADS)
    run_part(small_config(generations=1), folder)
    assert asked(folder)[0][1] == LOADS.id
    told = [record.getMessage() for record in caplog.records if "is not asked" in record.getMessage()]
    assert [Path(message.split(" ")[0]).name for message in told] == ["0-half.json", "1-other.json"]
    assert "is not asked: it cannot be read (Unterminated string" in told[0]
    assert "is not asked: its entry: list [1]; expected a mapping" in told[1]


def test_the_rows_of_a_run_agree_with_what_its_sampler_has_learnt(finished: RunFolder) -> None:
    with read_archive(finished) as archive:
        rows = {row.statistics.question_id: row for row in question_rows(archive)}
    loaded = load_newest(finished.checkpoints)
    assert loaded is not None
    learnt = loaded.checkpoint.sampler["tallies"]
    assert sorted(rows) == sorted(name for name, tally in learnt.items() if tally["asked"])
    for name, row in rows.items():
        counts = {key: getattr(row.statistics, key) for key in ("asked", "answered", "compiled", "right", "gained")}
        assert counts == {key: learnt[name][key] for key in counts}
    assert rows[ROWS.id].layer == "launch"
    assert rows[ROWS.id].moments[0] == "any"
    assert sum(row.statistics.asked for row in rows.values()) == 16


def test_a_question_that_moved_its_line_to_another_layer_says_from_which(finished: RunFolder) -> None:
    with read_archive(finished) as archive:
        rows, attempts = question_rows(archive), recorded_attempts(archive)
    made_in = {each.child_id: each.layer for each in attempts if each.outcome is Outcome.CHILD}
    for row in rows:
        came_from = [
            made_in[each.parent_ids[0]]
            for each in attempts
            if each.question_id == row.statistics.question_id
            and each.outcome is Outcome.CHILD
            and made_in.get(each.parent_ids[0], row.layer) != row.layer
        ]
        assert dict(row.moved_from) == Counter(came_from)
    moved = next(row for row in rows if row.moved_from)
    layer, times = moved.moved_from[0]
    said = evo("questions", "list", str(finished.path)).out
    assert f"    moved a line to {moved.layer} from {layer} {times} ×" in said


def test_the_list_of_a_run_shows_each_question_and_what_waits(finished: RunFolder) -> None:
    said = evo("questions", "list", str(finished.path))
    assert said.code == 0
    for name in {name for _, name, _ in asked(finished)}:
        assert f"{name}  (" in said.out
    block = said.out.partition(f"{ROWS.id}  (launch; ")[2].splitlines()
    assert block[1] == f"    {ROWS.text}"
    assert block[2].startswith("    asked 2, answered 2, compiled ")
    path = add_question(finished, LOADS)
    assert "added and not taken in yet: 1" in evo("questions", "list", str(finished.path)).out
    path.unlink()


def test_what_a_generation_that_is_not_complete_asked_is_not_called_unanswered(folder: RunFolder) -> None:
    add_question(folder, ROWS)
    assert run_part(small_config(generations=2), folder, InterruptedJudge(at=3)).reason == "interrupted"
    with read_archive(folder) as archive:
        rows = {row.statistics.question_id: row for row in question_rows(archive)}
        assert len(list(archive.replies())) == len(asked(folder))  # every one was answered
    assert (rows[ROWS.id].statistics.asked, rows[ROWS.id].unfinished) == (0, 1)
    said = evo("questions", "list", str(folder.path)).out
    assert said.partition(f"{ROWS.id}  (launch; ")[2].splitlines()[2] == "    unfinished 1"
    assert "answered" not in said
    explained = "unfinished: asked in a generation that is not complete; counted, with its outcome, once it is"
    assert said.splitlines()[-1] == explained
    run_part(small_config(generations=1), folder)
    with read_archive(folder) as archive:
        rows = {row.statistics.question_id: row for row in question_rows(archive)}
    assert (rows[ROWS.id].statistics.asked, rows[ROWS.id].statistics.answered, rows[ROWS.id].unfinished) == (1, 1, 0)
    assert "unfinished" not in evo("questions", "list", str(folder.path)).out


def test_the_list_without_a_run_is_the_bank() -> None:
    said = evo("questions", "list")
    bank = load_bank([shipped_bank_path()])
    assert said.code == 0
    question = bank.questions[7]
    assert f"{question.id}  ({question.layer}; {', '.join(question.moments)})\n    {question.text}\n" in said.out
    assert said.out.count("\n") == 2 * len(bank)


def test_a_question_that_was_put_twice_or_brought_a_gain_is_promoted(finished: RunFolder, tmp_path: Path) -> None:
    with read_archive(finished) as archive:
        promoted = promotions({"run": archive})
        gained = {row.statistics.question_id: row.statistics.gained for row in question_rows(archive)}
    wanted = [ROWS] + ([LOADS] if gained[LOADS.id] else [])
    assert [each.question for each in promoted] == wanted
    assert promoted[0].why.startswith("put 2 times to run: ")
    out = tmp_path / "promoted.yaml"
    said = evo("questions", "promote", str(finished.path), "--out", str(out))
    assert said.code == 0
    assert out.read_text(encoding="utf-8") == bank_entries(promoted)
    bank = load_bank([shipped_bank_path(), out])
    entry = bank.by_id(ROWS.id)
    assert (entry.text, entry.layer, entry.prescription) == (ROWS.text, Layer.LAUNCH, None)
    assert entry.origin == f"person, {promoted[0].why}"
    assert evo("questions", "promote", str(finished.path)).out == bank_entries(promoted)
    again = evo("questions", "promote", str(finished.path), "--out", str(out))
    assert (again.code, "is there already; name another file" in again.errors) == (2, True)


def test_recurring_counts_over_runs(tmp_path: Path) -> None:
    runs = [create_run_folder(tmp_path, name) for name in ("one", "two")]
    for run in runs:
        add_question(run, LOADS)
        run_part(small_config(generations=1), run)
    said = evo("questions", "promote", *[str(run.path) for run in runs])
    [entry] = yaml.safe_load(said.out)
    assert entry["id"] == LOADS.id
    assert entry["origin"].startswith("person, put 2 times to one, two: ")


def test_nothing_to_promote_is_said_and_no_file_is_made(folder: RunFolder, tmp_path: Path) -> None:
    run_part(small_config(generations=0), folder)
    said = evo("questions", "promote", str(folder.path), "--out", str(tmp_path / "none.yaml"))
    assert (said.code, said.out) == (0, "# no person's question was put twice or has brought a gain\n")
    assert "none.yaml" not in names(tmp_path)


def test_lint_passes_the_shipped_bank_and_names_what_is_wrong_in_a_file(tmp_path: Path) -> None:
    assert (evo("questions", "lint").code, evo("questions", "lint").out) == (0, "nothing found\n")
    own = tmp_path / "own.yaml"
    entry = {
        "id": "do-it", "text": "Make it faster", "layer": "memory", "moments": ["any"], "targets": ["portable"],
        "hypothesis": "none", "measurement": "none", "imperative": "Make it faster", "information": "It is slow.",
    }  # fmt: skip
    own.write_text(yaml.safe_dump([entry]), encoding="utf-8")
    said = evo("questions", "lint", str(own))
    assert said.code == 1
    assert "question-mark: do-it: ends in 'r'; expected a question mark" in said.out
    assert "imperative: do-it: a sentence starts with 'make'; expected no order" in said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "questions: no action named; expected evo questions list"),
        (["ask"], "questions: 'ask' is no action; expected"),
        (["list", "a", "b"], "questions list: a b: expected one run"),
        (["list", "nowhere"], "nowhere: no such run"),
        (["add"], "questions add: expected a run and one question in quotes"),
        (["add", "RUN"], "questions add: expected a run and one question"),
        (["add", "RUN", "Why", "not?"], "questions add: expected a run and one question"),
        (["add", "RUN", "Why not"], "questions add: question 'Why not': expected one that ends in a question mark"),
        (["add", "RUN", "Why {this}?"], "questions add: question 'Why {this}?': unknown slots ['this']"),
        (["add", "RUN", "Why not?", "layer=memroy"], "questions add: layer=memroy; did you mean 'memory'?"),
        (["add", "nowhere", "Why not?"], "nowhere: no such run"),
        (["promote"], "questions promote: no run named"),
        (["promote", "RUN", "--out"], "questions promote: --out needs a file's name"),
        (["lint", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_a_bad_command_line_gets_one_line(finished: RunFolder, words: list[str], said: str) -> None:
    told: Said = evo("questions", *[str(finished.path) if word == "RUN" else word for word in words])
    assert (told.code, told.out, told.errors.count("\n")) == (2, "", 1)
    assert said in told.errors
