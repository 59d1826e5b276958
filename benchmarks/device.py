"""The judge of the benchmarks: the same parts and settings that `evo verify` puts together on a GPU."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evo.config import BackendKind
from evo.data import include_folder
from evo.settings import compose_config
from evo.workbench import judge_settings
from fitness import worker as workers
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.evaluation import Environment
from fitness.evaluator import Evaluator, Target
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.judge_settings import JudgeSettings
from fitness.manifest import read_manifest
from fitness.plan import Build, SuitePlan
from fitness.planner import plan_suite
from fitness.probe import Gpu, Machine, probe_machine
from fitness.scenario import Suite

PRELOAD = ("fitness.backends.cuda", "benchmarks.device")  # each child imports the benchmark's own modules again
COMPILE_TIMEOUT_S = 120.0
COMPILER_MEMORY = 8 << 30


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What judges kernels here; the build cache is empty at the start."""

    machine: Machine
    gpu: Gpu
    compiler: NvrtcCompiler
    worker: workers.Worker
    settings: JudgeSettings

    def evaluator(self, suite: Suite) -> Evaluator:
        """The evaluator of a suite. Raises BaselineUnavailableError where the baseline cannot compute it."""
        baseline = self.worker.baseline(suite)
        environment = Environment(
            backend="cuda", device=self.gpu.name, driver=self.machine.driver, compiler=self.compiler.version,
            baseline=baseline.name, baseline_version=baseline.version,
        )  # fmt: skip
        target = Target(
            names=self.gpu.targets, sm_count=self.gpu.sm_count, environment=environment, compiling_disturbs=False,
            roof=baseline.roof,
        )
        return Evaluator(
            suite=suite, target=target, compiler=self.compiler, worker=self.worker, settings=self.settings,
            may_run=lambda _source: True,
        )  # fmt: skip

    def built(self, source: str, suite: Suite) -> tuple[SuitePlan, dict[Build, Path]]:
        """A source's plan and binaries, for what is run in this process. Raises CandidateFault."""
        plan = plan_suite(read_manifest(source), suite, self.gpu.sm_count)
        return plan, {build.build: build.binary for build in self.compiler.compile(source, plan.builds)}


def first_gpu(machine: Machine) -> Gpu:
    """The GPU that benchmarks run on. Raises EnvironmentFault where there is none."""
    if not machine.gpus:
        raise EnvironmentFault(machine.gpu_trouble or "this benchmark needs an NVIDIA GPU; none was found")
    return machine.gpus[0]


@contextmanager
def open_judge(*, baseline: str = "fa3", preload: Sequence[str] = PRELOAD) -> Iterator[Judge]:
    """The judge on the first GPU; `preload` adds to what the fork server imports. Raises EnvironmentFault."""
    start_fork_server((*workers.PRELOAD, *preload))
    machine = probe_machine()
    gpu = first_gpu(machine)
    settings = workers.WorkerSettings(backend=workers.BackendKind.CUDA, baseline=baseline)
    with tempfile.TemporaryDirectory() as cache, workers.open_worker(settings) as worker:
        compiler = NvrtcCompiler(
            arch=gpu.arch, include_dir=include_folder(), cache=BuildCache(Path(cache)), processes=os.cpu_count() or 2,
            timeout_s=COMPILE_TIMEOUT_S, memory_bytes=COMPILER_MEMORY,
        )  # fmt: skip
        try:
            judging = judge_settings(compose_config([]), BackendKind.cuda)
            yield Judge(machine=machine, gpu=gpu, compiler=compiler, worker=worker, settings=judging)
        finally:
            compiler.close()
