"""The runs of a comparison: which folders hold them, and what one archive has to say of its run."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evo.attempt_events import recorded_attempts
from evo.audits import judged_evaluations
from evo.compare.funnel import Funnel, funnel_of
from evo.history import Attempt, History, Outcome
from evo.run_options import locate_run
from evo.run_settings import flatten, recorded_settings
from evo.settings import ConfigError
from evo.sweep import is_sweep
from population.archive_reader import ArchiveReader, read_archive
from population.individual import SEED, Individual
from population.lineage import ReaddedLines, readded_lines
from population.records import Score
from population.run_folder import RunFolder, open_run_folder

_COST = "cost_usd"
_NUMBER_OF_SPEND = re.compile(r" (\d+)/\d+, \d+$")  # "without a reply 7/0, 3": spent on mutation 7


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One evaluation of a run, in the order in which they were made."""

    geomean: float  # 0.0 where it did not pass
    spent_usd: float  # on this candidate's question and on all before it


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a comparison needs to know of a run."""

    name: str
    settings: Mapping[str, Any]  # flat, by the configuration's keys
    fixed: frozenset[str]  # those of them that make the run the experiment that it is
    seeds: Mapping[str, float]  # each seed kernel's geomean by its id; 0.0 where it did not pass
    measured: tuple[Measured, ...]
    spend_usd: float
    funnel: Funnel
    unfinished: int  # questions of a generation that did not come to its end
    gains: Mapping[str, tuple[float, ...]]  # child over best parent, by the question's layer
    readded: ReaddedLines

    @property
    def offline(self) -> bool:
        """Whether no language model answered."""
        return self.settings.get("answerer.kind") == "offline"


def find_runs(words: Sequence[str]) -> dict[str, RunFolder]:
    """The runs at these paths, or of these names among the runs, by name; a folder of runs stands for all below it.

    Raises ConfigError for a folder without a run, RunFolderError for one that is not there.
    """
    found: dict[Path, tuple[str, RunFolder]] = {}
    for word in words:
        folder = locate_run(word)
        if folder.archive.is_file() or not folder.path.is_dir():
            inside = [open_run_folder(folder.path)]
        else:
            archives = folder.path.rglob(folder.archive.name)
            inside = [RunFolder(archive.parent) for archive in sorted(archives, key=_by_numbers)]
        if not inside:
            raise ConfigError(f"{folder.path}: no run is in this folder; expected runs, or a folder that holds some")
        for run in inside:
            below = run.path.relative_to(folder.path).as_posix()
            found.setdefault(run.path.resolve(), (_called(folder) if below == "." else f"{folder.name}/{below}", run))
    names = [name for name, _ in found.values()]
    return {name if names.count(name) == 1 else str(run.path): run for name, run in found.values()}


def _called(folder: RunFolder) -> str:
    """A sweep's job by both names, for its own is a number."""
    above = folder.path.parent
    return f"{above.name}/{folder.name}" if is_sweep(above) else folder.name


def read_run(name: str, folder: RunFolder) -> Run:
    """What the archive in a folder holds. Raises ConfigError for a run that has measured nothing, and ArchiveError."""
    with read_archive(folder) as archive:
        scores = list(archive.scores())  # first what needs the rest: a search may be writing
        attempts = recorded_attempts(archive)
        individuals = list(archive.individuals())
        if not scores:
            raise ConfigError(f"{folder.path}: nothing was measured in this run; leave it out, or go on with it first")
        fixed = recorded_settings(archive)
        history = history_of(archive, individuals, attempts)
        return Run(
            name=name,
            settings={**_composed(folder), **fixed},
            fixed=frozenset(fixed),
            seeds={each.id: history.geomean(each.id) for each in individuals if each.operator == SEED},
            measured=_measured(archive, scores, history),
            spend_usd=archive.spend_so_far()[_COST],
            funnel=funnel_of(attempts, history),
            unfinished=max(0, sum(1 for _ in archive.questions()) - len(attempts)),
            gains=_gains(attempts, history),
            readded=_readded(individuals, history),
        )


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """A sweep's job 10 comes after its job 9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in path.parts]


def _composed(folder: RunFolder) -> dict[str, Any]:
    """The configuration as it was composed; empty where a folder was carried without it."""
    path = folder.path / ".hydra" / "config.yaml"
    try:
        composed = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); restore it from a copy, or take it away") from error
    if not isinstance(composed, Mapping):
        raise ConfigError(f"{path}: {type(composed).__name__}; expected a mapping; restore it from a copy")
    return flatten(composed)


def history_of(archive: ArchiveReader, individuals: Sequence[Individual], attempts: Sequence[Attempt]) -> History:
    """What the run remembered of these."""
    history = History()
    for individual in individuals:
        history.add_individual(individual)
    for name, evaluation in judged_evaluations(archive):
        history.add_evaluation(name, evaluation)
    for attempt in attempts:
        history.add_attempt(attempt)
    return history


def _measured(archive: ArchiveReader, scores: Sequence[Score], history: History) -> tuple[Measured, ...]:
    """Money counts by the number of the question that it was spent on: those up to a candidate's had to be paid."""
    spent = _spent_by_number(archive)
    measured, latest = [], -1
    for score in scores:
        latest = max(latest, history.individual(score.individual_id).birth)
        cost = math.fsum(amount for number, amount in spent.items() if number <= latest)
        measured.append(Measured(geomean=history.geomean(score.individual_id), spent_usd=cost))
    return tuple(measured)


def _spent_by_number(archive: ArchiveReader) -> dict[int, float]:
    spent: dict[int, float] = {}
    for reply in archive.replies():
        spent[reply.number] = spent.get(reply.number, 0.0) + reply.cost_usd
    for record in archive.spend():
        number = _NUMBER_OF_SPEND.search(record.key)
        if record.kind == _COST and number:
            spent[int(number[1])] = spent.get(int(number[1]), 0.0) + record.amount
    return spent


def _gains(attempts: Sequence[Attempt], history: History) -> dict[str, tuple[float, ...]]:
    gains: dict[str, list[float]] = {}
    for attempt in attempts:
        gain = history.gain(attempt) if attempt.outcome is Outcome.CHILD else None
        if gain is not None:
            gains.setdefault(attempt.layer, []).append(gain)
    return {layer: tuple(gains[layer]) for layer in sorted(gains)}


def _readded(individuals: Sequence[Individual], history: History) -> ReaddedLines:
    """Summed over all children of the run."""
    added = readded = 0
    for individual in individuals:
        lines = readded_lines([ancestor.source for ancestor in reversed(history.line(individual.id))])
        added, readded = added + lines.added, readded + lines.readded
    return ReaddedLines(added=added, readded=readded)
