"""`evo evolve`: a search, a sweep of searches, or the rest of one that was interrupted."""

import multiprocessing
import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from evo.commands.errors import BAD_ENVIRONMENT, guarded
from evo.config import Config
from evo.console import open_console, plain_console, way_on
from evo.data import conf_folder
from evo.gpu_claim import beside_others, on_held_gpus
from evo.run import run_search
from evo.run_options import (
    earlier_overrides,
    join_options,
    keep_options,
    keep_words,
    key_of,
    merged_overrides,
    require_files,
)
from evo.settings import (
    HYDRA_VERSION,
    ConfigError,
    compose_config,
    each_variant,
    experiments_sweep,
    parse_overrides,
    quoted,
    register_schema,
    to_config,
)
from evo.signals import Interruption, orderly_stop, signals_end_a_sweep
from evo.stop import Interrupted
from evo.sweep import (
    DID_NOT_END,
    EXIT_FILE,
    Sweep,
    create_sweep,
    exit_code,
    is_sweep,
    keep_exit_code,
    open_sweep,
    require_launcher,
    split_words,
    summary,
    to_do,
)
from fitness.fork_server import start_fork_server
from fitness.probe import probe_machine
from fitness.worker import PRELOAD
from population.archive_reader import read_archive
from population.run_folder import RunFolder, create_run_folder, open_run_folder

STORY_FILE = "story.txt"  # what a job says where several would say it at once

_OWN_WORD = "backend.run_model_code"
_SWEEP_FLAGS = ("-m", "--multirun")
_SHOWING_FLAGS = ("--cfg", "--info", "--hydra-help")  # Hydra answers these


def evolve(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 where something passed, 1 where nothing did, 2 for a bad environment, 128 + signal if interrupted.

    A sweep's is the greatest of its jobs'. Raises ConfigError for a bad command line, before anything is started.
    """
    if any(word.split("=")[0] in _SHOWING_FLAGS for word in arguments):
        return _hand_to_hydra(arguments)
    given = [word for word in arguments if word not in _SWEEP_FLAGS]
    for word in given:
        if word.startswith("-"):
            raise ConfigError(f"{word} is no option of evolve; expected key=value, or -m for a sweep")
    swept = experiments_sweep(given)
    own = {override.get_key_element() for override in parse_overrides(given)}
    overrides = [*(f"{key}={values}" for key, values in swept.items() if key not in own), *given]
    sweep = bool(swept) or len(given) < len(arguments)
    if not sweep and any(override.is_sweep_override() for override in parse_overrides(overrides)):
        raise ConfigError("several values for one key: to sweep over them, add -m")
    require_launcher(overrides)
    for variant in each_variant(overrides):
        config = compose_config(variant)
        if config.resume is None:
            require_files(config)
    if not sweep:
        return _single(overrides, console)
    return _launch(*_sweep_to_launch(overrides, console), console)


def _single(overrides: list[str], console: Console) -> int:
    config = compose_config(overrides)
    if config.resume is None:
        folder, earlier = create_run_folder(Path(config.runs), config.name or _name()), overrides
        _note_taken(config, folder.path, console)
    else:
        folder = _run_to_resume(config.resume, Path(config.runs))
        earlier = earlier_overrides(folder)
        _require_own_word(earlier, overrides)
        overrides = merged_overrides(earlier, overrides)
        compose_config(overrides)
    code, result_before = BAD_ENVIRONMENT, _written_at(folder.result)
    try:
        keep_words(folder, overrides)  # Hydra does so too, but shows its users the traceback of a disk without room
        _hand_to_hydra([*overrides, f"hydra.run.dir={quoted(folder.path)}"])
        code = BAD_ENVIRONMENT if (left := exit_code(folder)) is None else left  # it could not be written
    finally:
        if config.resume is None and code >= BAD_ENVIRONMENT and not _began(folder, code):
            shutil.rmtree(folder.path, ignore_errors=True)  # there is nothing to go on with
    if code == BAD_ENVIRONMENT and config.resume is not None and _written_at(folder.result) == result_before:
        keep_options(folder, join_options(earlier))  # Hydra has written down what the run refused
    return code


def _note_taken(config: Config, made: Path, console: Console) -> None:
    """Say where a new run or sweep lies that is not called as its user named it, for that name was taken."""
    if config.name and made.name != config.name:
        taken = made.with_name(config.name)
        said = f"{taken} is there already, so this is {made}; to go on with the earlier one: resume={taken}"
        console.print(Text(said), soft_wrap=True)


def _written_at(path: Path) -> int | None:
    """When a file was last written, in ns; None where it is not there. A run that began ends by writing its result."""
    return path.stat().st_mtime_ns if path.exists() else None


def _began(folder: RunFolder, code: int) -> bool:
    """Whether anything was measured; of a run that a signal ended, whether there is an archive to go on with."""
    if code > BAD_ENVIRONMENT or not folder.archive.exists():
        return folder.archive.exists()
    with read_archive(folder) as archive:
        return archive.evaluation_count() > 0


def _require_own_word(earlier: Sequence[str], given: Sequence[str]) -> None:
    """A folder may come from anywhere: its word is not enough to run a model's code with this user's rights."""
    said = map(key_of, given)
    if compose_config(earlier).backend.run_model_code and _OWN_WORD not in said:
        begun = f"the run was begun with {_OWN_WORD}=true"
        raise ConfigError(f"resume: {begun}; to allow or forbid that here, say it again")


def _sweep_to_launch(overrides: list[str], console: Console) -> tuple[Sweep, list[RunFolder], list[str]]:
    """The sweep, a new one or one to go on with; its jobs that are to be done; and Hydra's words for launching them."""
    config = compose_config(next(each_variant(overrides)))
    if config.resume is None:
        sweep = create_sweep(Path(config.runs), config.name or _name(), overrides)
        _note_taken(config, sweep.path, console)
        return sweep, sweep.jobs(), list(sweep.launch)
    if any(override.is_sweep_override() for override in parse_overrides(overrides)):
        raise ConfigError("resume=… goes on with the jobs of one sweep; to sweep over other values, start a new one")
    sweep = open_sweep(_among_runs(config.resume, Path(config.runs)))
    of_jobs, launch = split_words(overrides)
    further = [word for word in of_jobs if word.split("=")[0] not in ("resume", "runs", "name")]
    for job in sweep.jobs():
        _require_own_word(earlier_overrides(job), further)
    rows = sweep.rows()
    sweep.add_words(further)
    return sweep, to_do(rows, all_of_them=bool(further)), merged_overrides(sweep.launch, launch)


def _launch(sweep: Sweep, jobs: Sequence[RunFolder], launch: Sequence[str], console: Console) -> int:
    """Have Hydra launch the jobs, each in its folder, whatever becomes of the others; then say what did."""
    words = [
        "-m", *launch, f"hydra.sweep.dir={quoted(sweep.path.resolve())}", "hydra.sweep.subdir=${resume}",
        "hydra.output_subdir=null", "resume=" + ",".join(quoted(job.path.resolve()) for job in jobs),
    ]  # fmt: skip
    launched = 0
    try:
        with signals_end_a_sweep():
            launched = _hand_to_hydra(words) if jobs else 0
    except SystemExit as end:  # Hydra's, once it has told of an error
        launched = end.code if isinstance(end.code, int) else DID_NOT_END
    finally:
        rows = sweep.rows()
        for line in (f"sweep: {sweep.path}", *summary(rows)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    codes = [DID_NOT_END if row.exit_code is None else row.exit_code for row in rows]
    return max([launched, *codes])


def _hand_to_hydra(arguments: Sequence[str]) -> int:
    """Let Hydra run `job` once, or many times; it reads the process's arguments. 0, or 128 + the ending signal."""
    register_schema()
    start = hydra.main(config_path=str(conf_folder()), config_name="config", version_base=HYDRA_VERSION)(job)
    before, sys.argv = sys.argv, ["evo evolve", *arguments]
    try:
        start()
    except Interruption as interruption:
        return interruption.code
    finally:
        sys.argv = before
    return 0


def job(composed: DictConfig) -> None:
    """One run, in the folder that Hydra gives it. Its exit code goes into a file there; a signal ends a sweep.

    Where jobs run in processes of their own, a job's signal is its own, and its story goes to a file.
    """
    context = HydraConfig.get()
    folder = RunFolder(Path(context.runtime.output_dir))
    swept = context.mode is RunMode.MULTIRUN
    launcher = context.runtime.choices["hydra/launcher"] if swept else "basic"
    apart = launcher != "basic"
    if apart:  # joblib leaves a way of starting processes that our own children do not know
        multiprocessing.set_start_method("forkserver", force=True)
    errors = open_console(stderr=True)
    with plain_console(folder.path / STORY_FILE) if apart else nullcontext(open_console()) as console:
        code = guarded(
            lambda: _in_order(_config_of(folder, launcher) if swept else to_config(composed), folder, console), errors
        )
    guarded(lambda: keep_exit_code(folder, code), errors)
    if code > BAD_ENVIRONMENT and not apart:
        raise Interruption(code)


def _config_of(folder: RunFolder, launcher: str) -> Config:
    """What the words in a job's folder make; Hydra's own were those that launched it."""
    options = join_options(earlier_overrides(folder))
    keep_options(folder, options)
    return beside_others(replace(options.config, resume=str(folder.path)), launcher)


def _in_order(config: Config, folder: RunFolder, console: Console) -> int:
    """The run's exit code. Raises Interrupted for a signal before its search has begun, having said how to go on."""
    try:
        with orderly_stop():
            return _run(config, folder, console)
    except Interrupted:
        if folder.archive.exists():
            console.print(Text(way_on(str(folder.path))), soft_wrap=True)
        raise


def _run(config: Config, folder: RunFolder, console: Console) -> int:
    if config.resume is None and folder.archive.exists():
        raise ConfigError(f"{folder.path} holds a run already; go on with it by resume={folder.path}")
    (folder.path / EXIT_FILE).unlink(missing_ok=True)  # until this part of the run has ended
    start_fork_server(PRELOAD)
    machine = probe_machine()
    with on_held_gpus(config, machine, lambda line: console.print(Text(line), soft_wrap=True)) as placed:
        return run_search(placed, machine, folder, console).exit_code


def _name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def _run_to_resume(name: str, runs: Path) -> RunFolder:
    """The run of that path, or of that name among the runs. Raises RunFolderError, and ConfigError for a sweep."""
    path = _among_runs(name, runs)
    if is_sweep(path):
        raise ConfigError(f"{path}: this is a sweep; to go on with it, add -m")
    return open_run_folder(path)


def _among_runs(name: str, runs: Path) -> Path:
    path = Path(name)
    return path if path.exists() or not (runs / name).exists() else runs / name
