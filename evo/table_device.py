"""What a run's figures were measured on where it measures nothing itself: the device of its table."""

from dataclasses import replace
from pathlib import Path

from evo.choices import Settled
from evo.config import BackendKind, Config
from evo.run_settings import recorded_settings
from fitness.backends.recorded import table_environment
from population.archive_reader import ArchiveReader


def as_measured(config: Config, settled: Settled, archive: ArchiveReader) -> Settled:
    """With a table the same under the name of the table's device, on whatever machine it is looked up.

    A run that has begun keeps the name that it began with. Raises EnvironmentFault for a table that cannot be read.
    """
    if settled.backend is not BackendKind.recorded:
        return settled
    begun = recorded_settings(archive).get("device")
    return replace(settled, device=begun or table_environment(Path(config.backend.table or "")).device)
