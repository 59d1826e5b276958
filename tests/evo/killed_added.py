"""Runs a small search that people put kernels to, each time killed by SIGKILL at another moment. A program of its own.

usage: killed_added.py ROOT NUMBER; what it leaves and prints is as in killed_runs.py.
"""

import sys
from pathlib import Path

from killed_runs import Death, main, run_mortal
from small_search import SOURCE

from evo.added_kernels import AddedKernel, add_kernel
from fitness.manifest import with_knobs
from population.individual import individual_id
from population.run_folder import RunFolder

FIRST = AddedKernel(source=f"{SOURCE}// by hand\n", parent_ids=(individual_id(SOURCE),))
SECOND = AddedKernel(source=with_knobs(FIRST.source, {"WIDTH": 4}), parent_ids=(individual_id(SOURCE), FIRST.id))
KNOWN = AddedKernel(source=SOURCE)


def run_added(folder: RunFolder, death: Death, rng_seed: int) -> None:
    for kernel in (FIRST, SECOND, KNOWN):
        add_kernel(folder, kernel)
    run_mortal(folder, death, rng_seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), None, run_added)
