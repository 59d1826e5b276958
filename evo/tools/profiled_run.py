"""`python -m evo.tools.profiled_run JOB`: launch a scenario once, for a profiler that watches this process."""

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from fitness.inputs import Distribution, draw_inputs
from fitness.plan import ScenarioPlan


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What is to be launched, and where."""

    plan: ScenarioPlan
    binary: Path
    device_index: int


def launch(launched: Launched) -> None:
    """Lay out the scenario on normal inputs and call it once. Raises CandidateFault or EnvironmentFault."""
    from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

    bound = CudaBackend(device_index=launched.device_index).bind(launched.plan, launched.binary)
    draw_inputs(Distribution.NORMAL, 0, bound.tensors.q, bound.tensors.k, bound.tensors.v)
    bound.poison()
    bound.replay.run()


if __name__ == "__main__":
    launch(pickle.loads(Path(sys.argv[1]).read_bytes()))  # noqa: S301  # written by NsightCompute, just now
