"""What runs under compute-sanitizer: one call of each build of a candidate on a small scenario, and nothing else.

`python -m fitness.sanitized JOB`, the job being a pickle that `fitness/sanitizer.py` wrote. Outputs are not poisoned
beforehand, so that a read of what was never written can be told.
"""

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from fitness.inputs import Distribution, draw_inputs
from fitness.plan import ScenarioPlan


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """The scenarios and the binaries that go with them; picklable."""

    plans: tuple[tuple[ScenarioPlan, Path], ...]
    device_index: int
    rng_seed: int


def run(job: Sanitized) -> None:
    """Make the calls. Raises CandidateFault where one fails, EnvironmentFault without the GPU."""
    from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

    backend = CudaBackend(device_index=job.device_index)
    for plan, binary in job.plans:
        bound = backend.bind(plan, binary)
        tensors = bound.tensors
        draw_inputs(Distribution.NORMAL, job.rng_seed, tensors.q, tensors.k, tensors.v)
        bound.replay.run()


if __name__ == "__main__":
    run(pickle.loads(Path(sys.argv[1]).read_bytes()))  # noqa: S301  # our own parent wrote it
