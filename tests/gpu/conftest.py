"""One compiler, one worker a baseline and one backend for all tests on a GPU: each takes seconds to start.

Candidates that may break a device run in a worker (`judge`); those whose outputs are looked at run here (`bind`).
"""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.evaluation import Environment
from fitness.evaluator import Evaluator, Target
from fitness.fork_server import start_fork_server
from fitness.judge_settings import JudgeSettings
from fitness.manifest import read_manifest
from fitness.planner import plan_scenario
from fitness.probe import probe_machine
from fitness.rules import check_rules
from fitness.scenario import Suite
from fitness.worker import PRELOAD, BackendKind, WorkerSettings, open_worker

INCLUDE = Path(__file__).parents[2] / "kernels" / "include"
QUICK = {"warmups": 1, "repeats": 3, "least_repeats": 3}


@pytest.fixture(scope="session")
def machine():
    start_fork_server((*PRELOAD, "fitness.backends.cuda"))
    return probe_machine()


@pytest.fixture(scope="session")
def gpu(machine):
    return machine.gpus[0]


@pytest.fixture(scope="session")
def hopper(gpu):
    if gpu.arch != "sm_90a":
        pytest.skip(f"for Hopper alone; {gpu.name} is {gpu.arch}")
    return gpu


@pytest.fixture(scope="session")
def open_compiler(gpu, tmp_path_factory):
    """A function that opens another compiler, with a cache of its own."""
    with ExitStack() as stack:

        def open_one(*, processes=1, timeout_s=60.0):
            compiler = NvrtcCompiler(
                arch=gpu.arch, include_dir=INCLUDE, cache=BuildCache(tmp_path_factory.mktemp("builds")),
                processes=processes, timeout_s=timeout_s, memory_bytes=8 << 30,
            )  # fmt: skip
            stack.callback(compiler.close)
            return compiler

        yield open_one


@pytest.fixture(scope="session")
def compiler(open_compiler):
    return open_compiler(processes=os.cpu_count() or 2)


@pytest.fixture(scope="session")
def worker(machine):
    with open_worker(WorkerSettings(backend=BackendKind.CUDA, baseline="sdpa")) as worker:
        yield worker


@pytest.fixture(scope="session")
def fa3_worker(hopper):
    with open_worker(WorkerSettings(backend=BackendKind.CUDA, baseline="fa3")) as worker:
        yield worker


@pytest.fixture(scope="session")
def judge(machine, gpu, compiler, worker):
    """A function that has the real evaluator judge a source; keywords beyond the first few are the judge's settings."""

    def judge_source(source, scenarios, *, edges=(), with_worker=worker, with_compiler=compiler, **settings):
        suite = Suite(name="gpu test", scenarios=tuple(scenarios), edges=tuple(edges))
        baseline = with_worker.baseline(suite)
        environment = Environment(
            backend="cuda", device=gpu.name, driver=machine.driver, compiler=with_compiler.version,
            baseline=baseline.name, baseline_version=baseline.version,
        )  # fmt: skip
        target = Target(
            names=frozenset({"portable", "sm_80", gpu.arch}), sm_count=gpu.sm_count, environment=environment,
            compiling_disturbs=False,
        )  # fmt: skip
        return Evaluator(
            suite=suite, target=target, compiler=with_compiler, worker=with_worker,
            settings=JudgeSettings(**(QUICK | settings)), may_run=lambda _: True,
        ).evaluate(source)  # fmt: skip

    return judge_source


@pytest.fixture(scope="session")
def backend(machine):
    from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

    return CudaBackend(device_index=0)


@pytest.fixture(scope="session")
def bind(gpu, compiler, backend):
    """A function that lays out a source on a scenario in this process, ready to be called."""

    def bind_source(source, scenario):
        manifest = read_manifest(source)
        check_rules(source, manifest)
        plan = plan_scenario(manifest, scenario, gpu.sm_count)
        (build,) = compiler.compile(source, [plan.build])
        return backend.bind(plan, build.binary)

    return bind_source
