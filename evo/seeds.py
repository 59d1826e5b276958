"""The seed kernels that a run begins with: shipped ones by name, others by path."""

from collections.abc import Sequence

from evo.data import kernel_path, seed_folder, shipped_names
from evo.settings import ConfigError
from fitness.manifest import same_but_for_knobs
from population.individual import individual_id, normalise


def read_seeds(names: Sequence[str]) -> list[str]:
    """The sources of seed kernels, by shipped name or by path, each once. Raises ConfigError."""
    sources = [read_seed(name) for name in names]
    if len({individual_id(source) for source in sources}) < len(sources):
        raise ConfigError(f"seeds=[{','.join(names)}]: a kernel is among them twice; expected each once")
    return sources


def read_seed(name: str) -> str:
    """The source of one kernel, normalised as in a run. Raises ConfigError where no name and no path leads to one."""
    path = kernel_path(name)
    try:
        return normalise(path.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        expected = f"expected .cu files or names among {shipped_names()}, as in seeds=[tiled]"
        raise ConfigError(f"seeds: {name!r} cannot be read ({error}); {expected}") from error


def is_shipped(name: str) -> bool:
    """Whether a kernel is a shipped seed but for the values of its knobs. Raises ConfigError as `read_seed`."""
    source = read_seed(name)
    return any(same_but_for_knobs(source, seed) for seed in shipped_sources())


def shipped_sources() -> list[str]:
    """The sources of all shipped seeds."""
    return [path.read_text(encoding="utf-8") for path in sorted(seed_folder().glob("*.cu"))]
