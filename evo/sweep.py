"""A sweep's folder: one run for each combination of values, what became of each, and which of them are still to do."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from evo.finished import refuse_less_than_made
from evo.result import read_result
from evo.run_options import earlier_overrides, keep_words, key_of, merged_overrides
from evo.settings import ConfigError, compose_config, parse_overrides
from evo.stop import is_final
from population.archive_lock import living_writer
from population.atomic_file import parse_json, strict_json, write_atomically
from population.faults import RunFault, RunFolderError
from population.run_folder import RunFolder, claim_folder, create_run_folder

EXIT_FILE = "exit.json"  # how a job ended: it may have run in another process, or on another machine
DID_NOT_END = 1  # the exit code of a job that left none
_SWEEP_FILE = "sweep.json"
_OF_HYDRA = ("hydra.", "hydra/", "+hydra.", "+hydra/", "++hydra.", "++hydra/")
_LAUNCHERS = ("joblib", "submitit", "ray")  # each an extra of ours


def find_plugin(module: str) -> object:
    """The module's specification, None where it or its package is not there."""
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None


class JobState(StrEnum):
    """What a resume does with a job: nothing, nothing yet, go on with it, or start it."""

    FINISHED = "finished"
    RUNNING = "running"  # a living process writes its archive
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # killed, stopped by a signal, or waiting for files
    NOT_STARTED = "not started"


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job, as the summary shows it."""

    number: int
    folder: RunFolder
    state: JobState
    exit_code: int | None  # None where it did not come to its end
    best_geomean: float | None
    overrides: tuple[str, ...]  # those in which the jobs differ


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The folder of a sweep, and Hydra's own words, which say how its jobs are launched."""

    path: Path
    launch: tuple[str, ...]

    def jobs(self) -> list[RunFolder]:
        """Its runs, by their numbers, whether or not they have begun."""
        numbers = sorted(int(path.name) for path in self.path.iterdir() if path.name.isdecimal())
        return [RunFolder(self.path / str(number)) for number in numbers]

    def rows(self) -> list[JobRow]:
        """How every job stands."""
        jobs = self.jobs()
        words = [earlier_overrides(job) for job in jobs]
        common = set.intersection(*map(set, words)) if len(words) > 1 else set()
        return [
            _row(job, tuple(word for word in own if word not in common))
            for job, own in zip(jobs, words, strict=True)
        ]

    def add_words(self, words: Sequence[str]) -> None:
        """Let every job go on with these overrides too.

        Raises ConfigError for a key in which the jobs differ, and for a budget that one has gone beyond: none of them
        keeps anything then.
        """
        swept = {key_of(word): row.number for row in self.rows() for word in row.overrides}
        for word in words:
            if key_of(word) in swept:
                raise ConfigError(f"resume: {key_of(word)} is what this sweep varies; start a new one for {word}")
        merged = {job: merged_overrides(earlier_overrides(job), words) for job in self.jobs()}
        if any(key_of(word).startswith("stop.") for word in words):
            for job, own in merged.items():
                _require_enough(job, own)
        for job, own in merged.items():
            keep_words(job, own)


def _require_enough(job: RunFolder, words: Sequence[str]) -> None:
    """Raise ConfigError where the words give a job that has come to its end less than it has made."""
    result = read_result(job) or {}
    evaluations, generations = (int(result.get(name) or 0) for name in ("evaluations", "generations"))
    try:
        refuse_less_than_made(compose_config(words).stop, evaluations=evaluations, generations=generations)
    except ConfigError as error:
        raise ConfigError(f"job {job.path.name}: {error}") from error


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The jobs' own words, and those that say how Hydra launches them."""
    hydra = [word for word in words if word.startswith(_OF_HYDRA)]
    return [word for word in words if word not in hydra], hydra


def require_launcher(words: Sequence[str], find: Callable[[str], object] = find_plugin) -> None:
    """Raise ConfigError where Hydra's launcher is not installed, or another sweeper than Hydra's own is asked for.

    `find` gives None for a module that is not there.
    """
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        extra = value.split("_")[0]
        if key == "hydra/sweeper" and value != "basic":
            raise ConfigError(f"{word}: a sweep here goes through all combinations of the values; leave it out")
        if key == "hydra/launcher" and extra in _LAUNCHERS and find(f"hydra_plugins.hydra_{extra}_launcher") is None:
            raise ConfigError(f"{word}: not installed; install it with: pip install hydra-{extra}-launcher")


def combinations(words: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: all combinations of the swept values, the last key's varying first."""
    choices: dict[str, list[str]] = {}
    for override in parse_overrides(words):
        key = override.get_key_element()
        if not override.is_sweep_override():
            choices[key] = [str(override.input_line)]
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(f"{override.input_line}: a sweep needs values that can be counted, as in {key}=1,2")
    return [list(row) for row in itertools.product(*choices.values())]


def create_sweep(root: Path, name: str, words: Sequence[str]) -> Sweep:
    """A new folder under `root`, with one numbered folder in it for each job. Raises RunFolderError, ConfigError."""
    of_jobs, launch = split_words(words)
    rows = combinations(of_jobs)
    sweep = Sweep(path=claim_folder(root, name), launch=tuple(launch))
    for number, row in enumerate(rows):
        keep_words(create_run_folder(sweep.path, str(number)), row)
    write_atomically(sweep.path / _SWEEP_FILE, strict_json({"schema": 1, "launch": list(launch)}) + "\n")
    return sweep


def is_sweep(path: Path) -> bool:
    """Whether a folder is a sweep's, whole."""
    return (path / _SWEEP_FILE).is_file()


def open_sweep(path: Path) -> Sweep:
    """The sweep in a folder. Raises ConfigError for anything else."""
    if not is_sweep(path):
        raise ConfigError(
            f"resume={path}: no sweep is there; expected the folder of one, such as runs/first-sweep, and for a "
            "single run no -m"
        )
    try:
        launch = parse_json((path / _SWEEP_FILE).read_text(encoding="utf-8"))["launch"]
        return Sweep(path=path, launch=tuple(map(str, launch)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path / _SWEEP_FILE} cannot be read ({error!r}); restore it from a copy") from error


def exit_code(folder: RunFolder) -> int | None:
    """How the job in a folder ended; None where it did not come to its end, or has not begun."""
    try:
        return int(parse_json((folder.path / EXIT_FILE).read_text(encoding="utf-8"))["exit_code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_exit_code(folder: RunFolder, code: int) -> int:
    """The code, once it is written down. Raises RunFolderError where it cannot be."""
    path = folder.path / EXIT_FILE
    try:
        write_atomically(path, strict_json({"exit_code": code}) + "\n")
    except OSError as error:
        raise RunFolderError(f"{path}: {error}; make room or rights there, then resume the run") from error
    return code


def to_do(rows: Sequence[JobRow], *, all_of_them: bool) -> list[RunFolder]:
    """The jobs to be launched: those that nobody runs now and, unless all are asked for, are not finished."""
    done = (JobState.RUNNING,) if all_of_them else (JobState.RUNNING, JobState.FINISHED)
    return [row.folder for row in rows if row.state not in done]


def summary(rows: Sequence[JobRow]) -> Iterator[str]:
    """A line a job, under a head, in columns."""
    cells = [("job", "state", "exit", "best", "overrides")]
    for row in rows:
        code = "–" if row.exit_code is None else str(row.exit_code)
        best = "–" if row.best_geomean is None else f"{row.best_geomean:.4f}"
        cells.append((str(row.number), str(row.state), code, best, " ".join(row.overrides)))
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    for line in cells:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]).rstrip()


def _row(folder: RunFolder, overrides: tuple[str, ...]) -> JobRow:
    code = exit_code(folder)
    try:
        result = read_result(folder)
    except RunFault:
        result = None
    best = (result or {}).get("best") or {}
    return JobRow(
        number=int(folder.name),
        folder=folder,
        state=_state(folder, code, final=result is not None and is_final(result["stop_reason"])),
        exit_code=code,
        best_geomean=best.get("geomean"),
        overrides=overrides,
    )


def _state(folder: RunFolder, code: int | None, *, final: bool) -> JobState:
    if living_writer(folder) is not None:
        return JobState.RUNNING
    if code is None:
        return JobState.INTERRUPTED if folder.archive.exists() else JobState.NOT_STARTED
    if code in (0, 1) and final:
        return JobState.FINISHED
    return JobState.INTERRUPTED if code > 128 or code in (0, 1) else JobState.FAILED
