"""Runs a small steady search again and again, each time killed by SIGKILL at another moment. A program of its own.

usage: killed_steady.py ROOT NUMBER; what it leaves and prints is as in killed_runs.py.
"""

import random
import sys
from pathlib import Path
from typing import Any

from killed_runs import Death, MortalArchive, MortalFolder, main
from small_search import KnobJudge, assemble
from small_steady import steady

from evo.steady import evolve_steadily
from population.archive import create_archive
from population.run_folder import RunFolder

LIMITS = {"generations": 4, "lambda_": 3}


def run_steadily(folder: RunFolder, death: Death, _rng_seed: int) -> None:
    random.seed("whatever the process did before")
    with create_archive(folder) as archive:
        mortal: Any = MortalArchive(archive, death)
        search = assemble(steady(**LIMITS), MortalFolder(folder, death), mortal, KnobJudge())
        evolve_steadily(search.state, search.toolbox, LIMITS["lambda_"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), None, run_steadily)
