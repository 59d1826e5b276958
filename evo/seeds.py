"""The seed kernels that a run begins with: shipped ones by name, others by path."""

from collections.abc import Sequence

from evo.data import kernel_path, seed_folder, shipped_names
from evo.settings import ConfigError
from fitness.manifest import same_but_for_knobs
from population.archive_reader import ArchiveReader
from population.individual import SEED, Individual, individual_id, normalise


def read_seeds(names: Sequence[str]) -> list[str]:
    """The sources of seed kernels, by shipped name or by path, each once. Raises ConfigError."""
    sources = [read_seed(name) for name in names]
    if len({individual_id(source) for source in sources}) < len(sources):
        raise ConfigError(f"seeds=[{','.join(names)}]: a kernel is among them twice; expected each once")
    return sources


def sown(names: Sequence[str], archive: ArchiveReader) -> list[Individual]:
    """The individuals that a run begins with, in the order of their names.

    Raises ConfigError as `read_seeds`, and for other texts than the run had begun with at these places.
    """
    recorded = (archive.individual(name) for name in archive.seed_ids())
    begun = {seed.birth: seed.id for seed in recorded}
    seeds = [
        Individual.from_source(source, birth=-1 - place, generation=0, operator=SEED)
        for place, source in enumerate(read_seeds(names))
    ]
    if len(begun) > len(seeds):
        raise ConfigError(
            f"seeds=[{','.join(names)}]: the run began with {len(begun)} seeds; name them all, or begin a run of "
            "another name"
        )
    for name, seed in zip(names, seeds, strict=True):
        expected = begun.get(seed.birth, seed.id)
        if seed.id != expected:
            raise ConfigError(
                f"seeds: {kernel_path(name)} is not what the run began with: expected the text of {expected}, found "
                f"{seed.id}; if it was edited, copy {expected}.cu from the run's kernels/ over it to go on; to search "
                "from it as it is, begin a run of another name"
            )
    return seeds


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
