"""One call of the kernel in the file that is named, on normal inputs: for a sanitizer to watch."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a script, by whatever starts it

from fitness.backends.cuda import CudaBackend
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.inputs import Distribution, draw_inputs
from fitness.manifest import read_manifest
from fitness.planner import plan_scenario
from fitness.probe import look_around
from fitness.process import start_fork_server
from tests.gpu.sources import ROOT, shape


def main() -> None:
    """Compile, bind, call."""
    start_fork_server()
    source, gpu = Path(sys.argv[1]).read_text(), look_around().gpus[0]
    plan = plan_scenario(read_manifest(source), shape(), gpu.sm_count)
    with tempfile.TemporaryDirectory() as cache:
        compiler = NvrtcCompiler(
            arch=gpu.arch, include_dir=ROOT / "kernels" / "include", cache=BuildCache(Path(cache)),
            processes=1, timeout_s=60.0, memory_bytes=8 << 30,
        )  # fmt: skip
        (build,) = compiler.compile(source, [plan.build])
        compiler.close()
        bound = CudaBackend(device_index=0).bind(plan, build.binary)
        draw_inputs(Distribution.NORMAL, 1, bound.tensors.q, bound.tensors.k, bound.tensors.v)
        bound.replay.run()


if __name__ == "__main__":
    main()
