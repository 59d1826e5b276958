"""Lets these tests import what lies beside this file and the made-up runs of the benchmarks, and gives them one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parent))

from benchmarks.bred_run import breed
from population.run_folder import RunFolder, create_run_folder


@pytest.fixture(scope="session")
def bred(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 60 individuals that tests only read."""
    folder = create_run_folder(tmp_path_factory.mktemp("bred"), "bred")
    breed(folder, individuals=60, suite="smoke", rng_seed=0)
    return folder
