"""The options of a run: given at its start, kept in its folder, and joined by those of later calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from omegaconf import OmegaConf

from evo.config import Config
from evo.loggers.reporting import require_logger
from evo.seeds import read_seeds
from evo.settings import ConfigError, compose_config, parse_overrides
from evo.single_shot import require_enough_questions
from evo.toolbox import build_bank, read_template
from population.atomic_file import write_atomically
from population.run_folder import RunFolder, open_run_folder, writing

RUNS = "runs"  # where a run is looked for by its name alone
_FOLDER = ".hydra"  # as Hydra names it, so that every command finds them there
_OVERRIDES = "overrides.yaml"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The words of a run's command lines, and the configuration that they make."""

    words: tuple[str, ...]
    config: Config


def locate_run(name: str, runs: str = RUNS) -> RunFolder:
    """The folder at that path, or of that name among the runs; the latter also where there is neither.

    A bare name means a run among the runs before it means a folder here; a path, such as a sweep's job NAME/0, means
    one from here before it means one among the runs.
    """
    here, among_runs = Path(name), Path(runs) / name
    if "/" in name:
        found = among_runs if among_runs.exists() and not here.exists() else here
    else:
        found = here if here.exists() and not among_runs.exists() else among_runs
    return RunFolder(found)


def open_run(name: str) -> RunFolder:
    """The run at that path, or of that name. Raises RunFolderError where there is none."""
    return open_run_folder(locate_run(name).path)


def run_and_file(words: Sequence[str], command: str, usage: str) -> tuple[str, Path | None]:
    """The name and the file, None where no file is named, in `RUN [--out FILE]`. Raises ConfigError."""
    match words:
        case [name] if not name.startswith("-"):
            return name, None
        case ["--out", file, name] | [name, "--out", file] if not name.startswith("-"):
            return name, Path(file)
    raise ConfigError(f"{command}: {' '.join(words) or 'no run named'}; {usage}")


def join_options(words: Sequence[str]) -> Options:
    """The words, read and checked, each with one value. Raises ConfigError."""
    if any(override.is_sweep_override() for override in parse_overrides(words)):
        raise ConfigError("several values for one key: expected one; only evo evolve -m sweeps")
    return Options(words=tuple(words), config=compose_config(words))


def has_options(folder: RunFolder) -> bool:
    """Whether the folder keeps a run's options."""
    return (folder.path / _FOLDER / _OVERRIDES).is_file()


def earlier_overrides(folder: RunFolder) -> list[str]:
    """The overrides that a run was begun with, or last gone on with. Raises ConfigError where they cannot be read."""
    path = folder.path / _FOLDER / _OVERRIDES
    try:
        words = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); restore it from a copy") from error
    overrides = [str(word) for word in words or []]
    if strange := [word for word in overrides if key_of(word).startswith("hydra")]:  # none of ours writes them
        raise ConfigError(f"{path} holds {strange[0]}, which can run any code; take out what you do not know")
    return overrides


def merged_overrides(earlier: Sequence[str], later: Sequence[str]) -> list[str]:
    """The earlier overrides, except where a later one sets the same key."""
    by_key = {key_of(word): word for word in (*earlier, *later)}
    return [word for key, word in by_key.items() if key not in ("name", "resume")] + [
        word for word in later if key_of(word) == "resume"
    ]


def keep_options(folder: RunFolder, options: Options) -> None:
    """Write them where Hydra would; the words come last, for a run is gone on with by them. Raises RunFolderError."""
    _write(folder, "config.yaml", OmegaConf.to_yaml(OmegaConf.structured(options.config)))
    keep_words(folder, options.words)


def keep_words(folder: RunFolder, words: Sequence[str]) -> None:
    """Write down the words that a run is to be begun with, or gone on with. Raises RunFolderError."""
    _write(folder, _OVERRIDES, yaml.safe_dump(list(words), allow_unicode=True, width=1_000_000))


def _write(folder: RunFolder, name: str, text: str) -> None:
    kept = folder.path / _FOLDER
    with writing(kept):
        kept.mkdir(exist_ok=True)
        write_atomically(kept / name, text)


def require_files(config: Config) -> None:
    """Read what a new run would read, so that an error leaves no folder behind. Raises ConfigError and its like."""
    read_seeds(config.seeds or ())
    read_template(config.style.template)
    require_enough_questions(config, build_bank(config))
    require_logger(config)


def key_of(override: str) -> str:
    """The key that an override sets or takes away."""
    return override.split("=", 1)[0].lstrip("+~")
