"""The seed kernels that a run begins with: shipped ones by name, others by path."""

from collections.abc import Sequence
from pathlib import Path

from evo.data import champion_folder, kernel_path, seed_folder
from evo.settings import ConfigError
from fitness.manifest import same_but_for_knobs
from population.individual import individual_id


def read_seeds(names: Sequence[str]) -> list[str]:
    """The sources of seed kernels, by shipped name or by path, each once. Raises ConfigError."""
    sources = [read_seed(name) for name in names]
    if len({individual_id(source) for source in sources}) < len(sources):
        raise ConfigError(f"seeds=[{','.join(names)}]: a kernel is among them twice; expected each once")
    return sources


def read_seed(name: str) -> str:
    """The source of one kernel. Raises ConfigError where there is none of that name, and no file at that path."""
    path = kernel_path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(path.stem for path in _shipped())
        expected = f"expected .cu files or names among {names}, as in seeds=[tiled]"
        raise ConfigError(f"seeds: {name!r} cannot be read ({error}); {expected}") from error


def is_shipped(name: str) -> bool:
    """Whether a kernel is a shipped one but for the values of its knobs. Raises ConfigError as `read_seed`."""
    source = read_seed(name)
    return any(same_but_for_knobs(source, seed) for seed in shipped_sources())


def shipped_sources() -> list[str]:
    """The sources of all shipped kernels."""
    return [path.read_text(encoding="utf-8") for path in _shipped()]


def _shipped() -> list[Path]:
    return [path for folder in (seed_folder(), champion_folder()) for path in sorted(folder.glob("*.cu"))]
