"""`evo evolve`: a search, a sweep of searches, or the rest of one that was interrupted."""

import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from evo.commands.errors import BAD_ENVIRONMENT, guarded
from evo.console import open_console
from evo.data import conf_folder
from evo.run import run_search
from evo.run_options import earlier_overrides, join_options, keep_options, merged_overrides, require_files
from evo.settings import (
    HYDRA_VERSION,
    ConfigError,
    compose_config,
    each_variant,
    experiments_sweep,
    parse_overrides,
    register_schema,
    to_config,
)
from fitness.fork_server import start_fork_server
from fitness.probe import probe_machine
from fitness.worker import PRELOAD
from population.archive_reader import read_archive
from population.atomic_file import parse_json, strict_json, write_atomically
from population.run_folder import RunFolder, create_run_folder, open_run_folder

EXIT_FILE = "exit.json"  # how a job ended: in a sweep it may have run in another process, or on another machine

_SWEEP_FLAGS = ("-m", "--multirun")
_SHOWING_FLAGS = ("--cfg", "--info", "--help", "-h", "--hydra-help")


def evolve(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 where something passed, 1 where nothing did, 2 for a bad environment, 128 + signal if interrupted.

    A sweep's is the greatest of its jobs'. Raises ConfigError for a bad command line, before anything is started.
    """
    if any(word.split("=")[0] in _SHOWING_FLAGS for word in arguments):
        _hand_to_hydra(arguments)
        return 0
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
    for variant in each_variant(overrides):
        config = compose_config(variant)
        if config.resume is None:
            require_files(config)
    return _sweep(overrides, console) if sweep else _single(overrides)


def _single(overrides: list[str]) -> int:
    config = compose_config(overrides)
    if config.resume is None:
        folder, earlier = create_run_folder(Path(config.runs), config.name or _name()), overrides
    else:
        folder = _run_to_resume(config.resume, Path(config.runs))
        earlier = earlier_overrides(folder)
        _require_own_word(earlier, overrides)
        overrides = merged_overrides(earlier, overrides)
        compose_config(overrides)
    code = BAD_ENVIRONMENT
    try:
        _hand_to_hydra([*overrides, f"hydra.run.dir={_quoted(folder.path)}"])
        code = _exit_code(folder.path)
    finally:
        if code == BAD_ENVIRONMENT and config.resume is None and not _began(folder):
            shutil.rmtree(folder.path, ignore_errors=True)  # there is nothing to go on with
    if code == BAD_ENVIRONMENT and config.resume is not None:
        keep_options(folder, join_options(earlier))  # Hydra has written down what the run refused
    return code


def _began(folder: RunFolder) -> bool:
    """Whether anything was measured."""
    if not folder.archive.exists():
        return False
    with read_archive(folder) as archive:
        return archive.evaluation_count() > 0


def _require_own_word(earlier: Sequence[str], given: Sequence[str]) -> None:
    """A folder may come from anywhere: its word is not enough to run a model's code with this user's rights."""
    asked = [word for word in earlier if word.startswith("backend.run_model_code=")]
    if asked and not any(word.startswith("backend.run_model_code=") for word in given):
        raise ConfigError(f"resume: the run was begun with {asked[-1]}; to allow or forbid that here, say it again")


def _sweep(overrides: list[str], console: Console) -> int:
    config = compose_config(next(each_variant(overrides)))
    if config.resume is not None:
        raise ConfigError("resume=… goes on with one run; resume the jobs of a sweep one by one")
    folder = create_run_folder(Path(config.runs), config.name or _name()).path
    _hand_to_hydra(["-m", *overrides, f"hydra.sweep.dir={_quoted(folder)}"])
    jobs = sorted((path.parent for path in folder.glob("*/.hydra")), key=lambda path: path.name.zfill(9))
    for job in jobs:
        console.print(f"{job}: exit code {_exit_code(job)}", markup=False, highlight=False, soft_wrap=True)
    return max((_exit_code(job) for job in jobs), default=1)


def _quoted(path: Path) -> str:
    """The path as a value that Hydra reads back as it stands."""
    return "'" + str(path).replace("\\'", "\\\\'").replace("'", "\\'") + "'"


def _hand_to_hydra(arguments: Sequence[str]) -> None:
    """Let Hydra run `job` once, or many times; it reads the process's arguments."""
    register_schema()
    start = hydra.main(config_path=str(conf_folder()), config_name="config", version_base=HYDRA_VERSION)(job)
    before, sys.argv = sys.argv, ["evo evolve", *arguments]
    try:
        start()
    except _Interruption:
        pass  # the job's exit code tells of it
    finally:
        sys.argv = before


class _Interruption(BaseException):
    """Passes through Hydra, which would go on with a sweep's next job."""


def job(composed: DictConfig) -> None:
    """One run, in the folder that Hydra gives it. Its exit code goes into a file there; a signal ends a sweep."""
    folder = RunFolder(Path(HydraConfig.get().runtime.output_dir))
    code = guarded(lambda: _run(composed, folder), open_console(stderr=True))
    write_atomically(folder.path / EXIT_FILE, strict_json({"exit_code": code}) + "\n")
    if code > BAD_ENVIRONMENT:
        raise _Interruption


def _run(composed: DictConfig, folder: RunFolder) -> int:
    config = to_config(composed)
    if config.resume is None and folder.archive.exists():
        raise ConfigError(f"{folder.path} holds a run already; go on with it by resume={folder.path}")
    (folder.path / EXIT_FILE).unlink(missing_ok=True)  # until this part of the run has ended
    start_fork_server(PRELOAD)
    return run_search(config, probe_machine(), folder, open_console()).exit_code


def _name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def _run_to_resume(name: str, runs: Path) -> RunFolder:
    """The run of that path, or of that name among the runs. Raises RunFolderError."""
    path = Path(name)
    return open_run_folder(path if path.exists() or not (runs / name).exists() else runs / name)


def _exit_code(folder: Path) -> int:
    """How the job in a folder ended; 1 where it did not come to its end."""
    try:
        return int(parse_json((folder / EXIT_FILE).read_text(encoding="utf-8"))["exit_code"])
    except (OSError, ValueError, KeyError, TypeError):
        return 1
