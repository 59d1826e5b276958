"""What runs under compute-sanitizer: one call of each build of a candidate on a small scenario, and nothing else.

`python -m fitness.sanitized JOB`, the job being a pickle that `fitness/sanitizer.py` wrote. Outputs are not poisoned
beforehand, so that a read of what was never written can be told. It says on its output how far it has come, for a tool
may end it at any moment.
"""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitness.faults import CandidateFault
from fitness.inputs import Distribution, draw_inputs
from fitness.plan import ScenarioPlan

READY, CALLING, CALLED, BROKE = (f"evo: {word}" for word in ("ready", "calling ", "called ", "broke on "))


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """The scenarios and the binaries that go with them; picklable."""

    plans: tuple[tuple[ScenarioPlan, Path], ...]
    device_index: int
    rng_seed: int


def run(job: Sanitized, say: Callable[[str], object]) -> None:
    """Make the calls, and `say` each step. Raises CandidateFault where one fails, EnvironmentFault without the GPU."""
    from fitness.backends.cuda import CudaBackend, context_is_lost  # CuPy, which only GPU machines have

    backend = CudaBackend(device_index=job.device_index)
    say(READY)  # kernels of torch's have run: the tool can do its work here
    for plan, binary in job.plans:
        bound = backend.bind(plan, binary)
        tensors = bound.tensors
        draw_inputs(Distribution.NORMAL, job.rng_seed, tensors.q, tensors.k, tensors.v)
        say(f"{CALLING}{plan.scenario.name}")
        try:
            bound.replay.run()
        except CandidateFault as fault:
            if context_is_lost():  # by a kernel that ran: one that cannot be launched leaves it whole
                say(f"{BROKE}{plan.scenario.name}: {fault.reason}")
            raise
        say(f"{CALLED}{plan.scenario.name}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(pickle.loads(Path(sys.argv[1]).read_bytes()), _say)  # noqa: S301  # our own parent wrote it
