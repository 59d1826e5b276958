"""Runs a small steady search of one question at a time again and again, each time killed at another moment.

usage: killed_one_by_one.py ROOT NUMBER [RNG_SEED]; what it leaves and prints is as in killed_runs.py.
"""

import random
import sys
from pathlib import Path
from typing import Any

from killed_runs import Death, MortalArchive, MortalFolder, main
from small_search import KnobJudge, assemble
from small_steady import one_by_one

from evo.steady import evolve_steadily
from population.archive import create_archive
from population.run_folder import RunFolder


def run_one_by_one(folder: RunFolder, death: Death, rng_seed: int) -> None:
    random.seed("whatever the process did before")
    config = one_by_one(rng_seed)
    with create_archive(folder) as archive:
        mortal: Any = MortalArchive(archive, death)
        search = assemble(config, MortalFolder(folder, death), mortal, KnobJudge())
        evolve_steadily(search.state, search.toolbox, config.evolution.lambda_)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None, run_one_by_one)
