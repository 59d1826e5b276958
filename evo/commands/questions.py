"""`evo questions`: see the bank and what its questions have brought, put a question to a run, check, promote."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from evo.added_questions import add_question, questions_taken_in
from evo.console import say
from evo.dropped_files import dropped_files
from evo.question_records import QuestionRow, bank_entries, promotions, question_rows
from evo.run_options import open_run
from evo.settings import ConfigError
from population.archive_reader import read_archive
from population.atomic_file import write_atomically
from population.run_folder import RunFolder
from questions.bank import load_bank, shipped_bank_path
from questions.entry import nearest
from questions.lint import lint
from questions.personal import personal_question
from questions.question import Layer

_USAGE = 'expected evo questions list [RUN] | add RUN "…?" [layer=memory] | lint [FILES…] | promote RUNS… [--out FILE]'
_DEFAULT_LAYER = Layer.ALGORITHM


def questions(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0; 1 where lint finds something. Raises ConfigError for a bad command line."""
    if not arguments or arguments[0] not in _ACTIONS:
        what = f"{arguments[0]!r} is no action" if arguments else "no action named"
        raise ConfigError(f"questions: {what}; {_USAGE}")
    return _ACTIONS[arguments[0]](arguments[1:], console)


def _list(words: Sequence[str], console: Console) -> int:
    if len(words) > 1:
        raise ConfigError(f"questions list: {' '.join(words)}: expected one run, or none for the bank")
    if words:
        _list_run(open_run(words[0]), console)
    else:
        for question in load_bank([shipped_bank_path()]):
            _say(console, f"{question.id}  ({question.layer}; {', '.join(question.moments)})", question.text)
    return 0


def _list_run(run: RunFolder, console: Console) -> None:
    with read_archive(run) as archive:
        rows = question_rows(archive)
        known = {taken.name for taken in questions_taken_in(archive)}
    for row in rows:
        head = f"{row.statistics.question_id}  ({row.layer}; {', '.join(row.moments)})"
        _say(console, head, row.text, _figures(row), *_moves(row))
    if any(row.unfinished for row in rows):
        _say(console, "unfinished: asked in a generation that is not complete; counted, with its outcome, once it is")
    if waiting := [path for path in dropped_files(run.questions) if path.stem not in known]:
        _say(console, f"added and not taken in yet: {len(waiting)}")


def _add(words: Sequence[str], console: Console) -> int:
    layers = [word.partition("=")[2] for word in words if word.startswith("layer=")]
    plain = [word for word in words if not word.startswith("layer=")]
    if len(plain) != 2:
        raise ConfigError('questions add: expected a run and one question in quotes: evo questions add RUN "…?"')
    run = open_run(plain[0])
    layer = layers[-1] if layers else _DEFAULT_LAYER
    if layer not in list(Layer):
        raise ConfigError(f"questions add: layer={layer}{nearest(layer, [str(each) for each in Layer])}")
    try:
        question = personal_question(plain[1], layer=Layer(layer))
    except ValueError as fault:
        raise ConfigError(f"questions add: {fault}") from fault
    path = add_question(run, question)
    _say(console, f"{question.id} is asked first when the run puts its next questions; it waits as {path}")
    return 0


def _lint(words: Sequence[str], console: Console) -> int:
    """The user's files are checked beside the shipped one, for questions that ask the same twice."""
    findings = lint(load_bank([shipped_bank_path(), *map(Path, words)]))
    for finding in findings:
        _say(console, f"{finding.rule}: {finding.message}")
    if not findings:
        _say(console, "nothing found")
    return 1 if findings else 0


def _promote(words: Sequence[str], console: Console) -> int:
    names, out = _split_out(words)
    if not names:
        raise ConfigError("questions promote: no run named; expected evo questions promote RUNS… [--out FILE]")
    with ExitStack() as stack:
        promoted = promotions({run.name: stack.enter_context(read_archive(run)) for run in map(open_run, names)})
    if not promoted:
        _say(console, "# no person's question was put twice or has brought a gain")
    elif out is None:
        console.print(Text(bank_entries(promoted)), soft_wrap=True, end="")
    else:
        _write_new(out, bank_entries(promoted))
        _say(console, f"{len(promoted)} in {out}; give each its own phrasings, then: evo questions lint {out}")
    return 0


def _split_out(words: Sequence[str]) -> tuple[list[str], Path | None]:
    if "--out" not in words:
        return list(words), None
    place = words.index("--out")
    if place + 1 >= len(words):
        raise ConfigError("questions promote: --out needs a file's name")
    return [*words[:place], *words[place + 2 :]], Path(words[place + 1])


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise ConfigError(f"questions promote: {path} is there already; name another file")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"questions promote: {path} cannot be written ({error})") from error


def _say(console: Console, head: str, *further: str) -> None:
    """One line, and further ones that belong to it."""
    for line in (head, *(f"    {each}" for each in further)):
        say(console, line)


def _moves(row: QuestionRow) -> list[str]:
    if not row.moved_from:
        return []
    return [f"moved a line to {row.layer} from {', '.join(f'{layer} {times} ×' for layer, times in row.moved_from)}"]


def _figures(row: QuestionRow) -> str:
    counts, names = row.statistics, ("asked", "answered", "compiled", "right", "gained")
    figures = [f"{name} {getattr(counts, name)}" for name in names if counts.asked]
    if row.unfinished:
        figures.append(f"unfinished {row.unfinished}")
    if counts.mean_gain is not None:
        figures.append(f"mean gain {counts.mean_gain:.3f}")
    if counts.mean_gain_low is not None:
        figures.append(f"95 % interval {counts.mean_gain_low:.3f} to {counts.mean_gain_high:.3f}")
    return ", ".join(figures)


_ACTIONS: Mapping[str, Callable[[Sequence[str], Console], int]] = {
    "list": _list, "add": _add, "lint": _lint, "promote": _promote,
}  # fmt: skip
