"""`evo compare`: what runs brought, and how surely groups of them differ."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from evo.commands.compare_shots import show_shots
from evo.compare.files import as_csv, as_json
from evo.compare.outcomes import Outcome
from evo.compare.plots import picture, require_plots
from evo.compare.repeats import require_different
from evo.compare.runs import find_runs, read_run
from evo.compare.shots import are_single_shots
from evo.compare.summary import compare_runs
from evo.compare.tables import tables
from evo.compare.words import cautions, conclusions, offline_label
from evo.run_options import locate_run
from evo.settings import ConfigError
from evo.trace.restore import restore_runs
from population.atomic_file import write_atomically
from population.run_folder import RunFolder
from questions.entry import nearest

_USAGE = (
    "expected evo compare RUNS… [by=style] [outcome=equal_evaluations] [target=1.2] [--csv FILE] [--json FILE] "
    "[--plot FILE.png|.svg]"
)
_KEYS = ("by", "outcome", "target")
_FLAGS = ("--csv", "--json", "--plot")


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    names: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        word = self.options.get("outcome", Outcome.EQUAL_EVALUATIONS)
        if word not in list(Outcome):
            raise ConfigError(f"compare: outcome={word}{nearest(word, [str(each) for each in Outcome])}")
        return Outcome(word)

    @property
    def target(self) -> float | None:
        word = self.options.get("target")
        if word is None:
            return None
        try:
            target = float(word)
        except ValueError:
            target = 0.0
        if not 0 < target < float("inf"):
            raise ConfigError(f"compare: target={word}: expected a geometric mean speedup above 0, as in target=1.2")
        return target


def compare(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0, whatever the comparison says. Raises ConfigError for a bad command line or a run told twice, and
    RunFault.
    """
    wanted = _read(arguments)
    outcome, target, by = wanted.outcome, wanted.target, wanted.options.get("by", "style")
    with tempfile.TemporaryDirectory(prefix="evo-compare-") as scratch:
        return _compared(wanted, outcome, target, by, Path(scratch), console)


def _compared(
    wanted: _Wanted, outcome: Outcome, target: float | None, by: str, scratch: Path, console: Console
) -> int:
    found = _found(wanted.names, scratch)
    require_different(found)
    if are_single_shots(found):
        return show_shots(found, wanted.options, wanted.files, console)
    if "--plot" in wanted.files:
        require_plots(wanted.files["--plot"])
    runs = [read_run(name, folder) for name, folder in found.items()]
    comparison = compare_runs(runs, by=by, outcome=outcome, target=target)
    said, warned = conclusions(comparison), cautions(runs, comparison)
    label = offline_label(runs, by)
    for table in tables(comparison, label):
        console.print(table)
    for line in (*said, *(f"caution: {each}" for each in warned)):
        console.print(Text(line), soft_wrap=True)
    for flag, path in wanted.files.items():
        match flag:
            case "--csv":
                write_atomically(path, as_csv(comparison.runs))
            case "--json":
                write_atomically(path, as_json(comparison, said, warned))
            case _:
                path.write_bytes(picture(comparison, runs, path.suffix.lower().removeprefix("."), label))
        console.print(Text(f"written: {path}"), soft_wrap=True)
    return 0


def _found(names: Sequence[str], scratch: Path) -> dict[str, RunFolder]:
    """The runs of these names; a file stands for the runs whose traces it holds, which are laid out below `scratch`."""
    found = find_runs([name for name in names if not Path(name).is_file()])
    for path in dict.fromkeys(Path(name).resolve() for name in names if Path(name).is_file()):
        for folder in restore_runs(path, scratch):
            found[f"{folder.name} of {path.name}" if folder.name in found else folder.name] = folder
    return found


def _read(arguments: Sequence[str]) -> _Wanted:
    names: list[str] = []
    options: dict[str, str] = {}
    files: dict[str, Path] = {}
    words = iter(arguments)
    for word in words:
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            if word not in _FLAGS:
                raise ConfigError(f"compare: {word} is no option; {_USAGE}")
            name = next(words, "")
            if not name or name.startswith("-"):
                raise ConfigError(f"compare: {word} needs a file's name")
            files[word] = Path(name)
        elif key in _KEYS and equals:
            if not value:
                raise ConfigError(f"compare: {word} needs a value; {_USAGE}")
            options[key] = value
        elif equals and not locate_run(word).path.exists():
            raise ConfigError(f"compare: {word!r} is no option{nearest(key, _KEYS)}; {_USAGE}")
        else:
            names.append(word)
    if not names:
        raise ConfigError(f"compare: no run named; {_USAGE}")
    return _Wanted(names=tuple(names), options=options, files=files)
