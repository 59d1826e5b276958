"""What would make a run pointless, found before anything is asked or measured."""

from collections.abc import Sequence
from pathlib import Path

from evo.choices import Settled
from evo.config import AnswererKind, BackendKind, Config
from evo.seeds import is_shipped, read_seed, read_seeds
from evo.settings import ConfigError
from fitness.backends.recorded import load_table
from fitness.evaluation_key import source_sha256
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest


def refuse_pointless(config: Config, settled: Settled, *, begun: bool = False) -> None:
    """Raises ConfigError where no candidate of the run could be judged, or none could differ from its seed.

    The seeds of a run that has begun are in its archive, and their files may be gone.
    """
    seeds = [] if begun else config.seeds or []
    if settled.backend is BackendKind.host and not config.backend.run_model_code:
        _refuse_native_code(config, seeds)
    sources = read_seeds(seeds)
    if settled.backend is BackendKind.recorded and sources:
        _refuse_seeds_not_in_table(Path(config.backend.table or ""), seeds, sources)
    if config.answerer.kind is AnswererKind.offline and sources and not any(map(_can_be_turned, sources)):
        raise ConfigError(
            f"seeds=[{','.join(seeds)}]: the offline answerer turns knobs, and no seed has one; "
            "name a seed with [knobs] in its manifest, or another answerer"
        )


def _refuse_native_code(config: Config, seeds: Sequence[str]) -> None:
    """All of it would be refused, kernel by kernel, after a model's were paid for."""
    if config.answerer.kind is AnswererKind.openai:
        raise ConfigError(
            "answerer=openai on the host backend: what a model writes would run natively here, with your rights; "
            "to allow that, add backend.run_model_code=true"
        )
    for name in seeds:
        if not is_shipped(name):
            raise ConfigError(
                f"seeds: {name} would run natively on the host backend, with your rights, and so would its children; "
                "to allow that, add backend.run_model_code=true"
            )


def _refuse_seeds_not_in_table(table: Path, seeds: Sequence[str], sources: Sequence[str]) -> None:
    known = {evaluation.source_sha256 for evaluation in load_table(table)}
    if known and known.isdisjoint(map(source_sha256, sources)):
        raise ConfigError(
            f"seeds=[{','.join(seeds)}]: not among the {len(known)} kernels of backend.table={table}, so that nothing "
            "could be asked; name one that is by seeds=[FILE.cu], such as the seed of the run that was measured"
        )


def refuse_seeds_not_for_host(config: Config) -> None:
    """Raises ConfigError where the host backend is named and can never run one of the seeds."""
    if config.backend.kind is not BackendKind.host:
        return
    for name in config.seeds or []:
        if targets := _other_targets(read_seed(name)):
            raise ConfigError(
                f"seeds: {name} targets {', '.join(targets)}, and the host backend runs portable kernels only; name "
                "such a one, as in seeds=[tiled]"
            )


def _other_targets(source: str) -> tuple[str, ...]:
    """A kernel's targets where it is not portable; none where it is."""
    try:
        manifest = read_manifest(source)
    except CandidateFault:
        return ()  # the judge says better what is wrong with it
    return () if manifest.portable else manifest.targets


def _can_be_turned(source: str) -> bool:
    try:
        return any(len(knob.choices) > 1 for knob in read_manifest(source).knobs)
    except CandidateFault:
        return True  # the judge says better what is wrong with it
