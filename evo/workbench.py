"""Builds what judges kernels here: compiler, worker and evaluator for the settled backend."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from evo.choices import Settled
from evo.config import BackendKind, Config
from evo.data import cache_folder, include_folder
from evo.judging import EvaluatesAll
from evo.pending import differences
from evo.pool_config import PoolKind
from evo.pools import open_workers, pooled
from evo.seeds import shipped_sources
from evo.tools.bench import Bench
from evo.tools.disassemble import Disassemble, disassembler
from evo.tools.draft_judge import DraftJudge
from evo.tools.measure import Measure
from evo.tools.nsight import find_ncu
from evo.tools.occupancy import Occupancy
from evo.tools.profile import Profile
from fitness.backends.host_compiler import HostCompiler
from fitness.backends.recorded import RecordedEvaluator, load_table
from fitness.build_cache import BuildCache
from fitness.compiler import Compiler, NvrtcCompiler
from fitness.evaluation import Environment
from fitness.evaluator import Evaluator, Target
from fitness.faults import EnvironmentFault
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.manifest import same_but_for_knobs
from fitness.pool import MeasuringWorker, PooledEvaluator
from fitness.probe import Gpu, Machine
from fitness.roof import Roof

_GIB = 2**30
_COMPILER_MEMORY = 4 * _GIB
_CACHE_BYTES = 2 * _GIB
_HOST_SM_COUNT = 1  # a processor has no multiprocessors; launch expressions may name them all the same
_HOST_JUDGE = JudgeSettings(warmups=1, repeats=5, least_repeats=3, precision=0.02, scenario_budget_s=2.0)
_GPU_JUDGE = JudgeSettings(warmups=1, repeats=15, least_repeats=5, precision=0.005, scenario_budget_s=2.0)


@contextmanager
def open_evaluator(
    config: Config, settled: Settled, machine: Machine, *, trusted: Sequence[str] = (),
    began: Environment | None = None, settings: JudgeSettings | None = None,
    watched: Callable[[MeasuringWorker], MeasuringWorker] = lambda worker: worker,
) -> Iterator[EvaluatesAll]:  # fmt: skip
    """The evaluator of the settled backend, its workers and its compiler ended afterwards.

    `trusted` sources may run natively on the host besides the shipped seeds. `began` is where the run's first candidate
    was measured: figures of another compiler or baseline do not belong beside it. Without `settings` the judge has the
    configured ones. `watched(worker)` stands in for each worker. Raises EnvironmentFault, of which
    BaselineUnavailableError is a kind, before anything is measured.
    """
    if settled.backend is BackendKind.recorded:
        yield _recorded(Path(config.backend.table or ""), settled, began)
        return
    with open_workers(config, settled, machine) as opened, closing(_compiler(config, settled)) as compiler:
        workers = [watched(worker) for worker in opened]
        baseline = workers[0].baseline(settled.suite)
        environment = Environment(
            backend=settled.backend.value,
            device=settled.device,
            driver=machine.driver,
            compiler=compiler.version,
            baseline=baseline.name,
            baseline_version=baseline.version,
        )
        if began is not None and (differing := differences(began, environment)):
            raise EnvironmentFault(f"resume: the run began elsewhere: {', '.join(differing)}; start a new run")
        evaluator = Evaluator(
            suite=settled.suite,
            target=_target(config, settled.gpu, environment, baseline.roof),
            compiler=compiler,
            worker=workers[0],
            settings=settings or judge_settings(config, settled.backend),
            may_run=_permission(config, settled, trusted),
            compile_threads=_processes(config),
        )
        with pooled(config, evaluator, workers, baseline, compile_threads=_processes(config)) as judge:
            yield judge


def build_bench(config: Config, settled: Settled, evaluator: EvaluatesAll) -> Bench:
    """The tools that the model may call on drafts, which `evaluator` judges as it does candidates."""
    gpu = settled.gpu
    compiler = evaluator if isinstance(evaluator, Evaluator | PooledEvaluator) else None
    judge = DraftJudge(evaluator=evaluator, compiler=compiler)
    tools = (
        Measure(judge),
        Profile(judge, ncu=find_ncu(), device_index=gpu.index if gpu else None),
        Disassemble(judge, program=shutil.which(disassembler(on_gpu=gpu is not None)), on_gpu=gpu is not None),
        Occupancy(judge, gpu),
    )
    return Bench(tools, limit=config.answerer.tool_calls)


def _recorded(path: Path, settled: Settled, began: Environment | None) -> RecordedEvaluator:
    table, suite, baseline = load_table(path), settled.suite.name, settled.baseline.value
    evaluator = RecordedEvaluator(table)
    if table[0].suite != suite:
        raise EnvironmentFault(f"backend.table: {path} was measured on the suite {table[0].suite}, not on {suite}")
    if evaluator.environment.baseline != baseline:  # which the prompts and the settings name
        beside = evaluator.environment.baseline
        said = f"was measured beside {beside}, not {baseline}; say baseline={beside}"
        raise EnvironmentFault(f"backend.table: {path} {said}")
    if began is not None and (differing := differences(began, evaluator.environment)):
        said = f"the run began with another table: {', '.join(differing)}; name that one, or start a new run"
        raise EnvironmentFault(f"backend.table: {path}: {said}")
    return evaluator


def judge_settings(config: Config, backend: BackendKind) -> JudgeSettings:
    """The judge's settings for a backend, with what the suite and above it the command line set themselves."""
    base, suite, judge = _GPU_JUDGE if backend is BackendKind.cuda else _HOST_JUDGE, config.suite, config.judge
    repeats = judge.repeats or suite.repeats or base.repeats
    distributions = [Distribution[each.name.upper()] for each in suite.distributions or ()]
    return replace(
        base,
        distributions=tuple(distributions) or base.distributions,
        long_seqlen_k=suite.long_seqlen_k or base.long_seqlen_k,
        repeats=repeats,
        least_repeats=min(suite.least_repeats or base.least_repeats, repeats),
        precision=base.precision if judge.precision is None else judge.precision,
        warmups=base.warmups if judge.warmups is None else judge.warmups,
        call_timeout_s=judge.call_timeout_s,
    )


def _compiler(config: Config, settled: Settled) -> Compiler:
    cache = BuildCache(cache_folder(config.backend.cache, os.environ))
    cache.prune(_CACHE_BYTES)
    compiler = HostCompiler if settled.gpu is None else partial(NvrtcCompiler, arch=settled.gpu.arch)
    return compiler(
        include_dir=include_folder(),
        cache=cache,
        processes=_processes(config),
        timeout_s=config.backend.compile_timeout_s,
        memory_bytes=_COMPILER_MEMORY,
    )


def _processes(config: Config) -> int:
    return config.backend.compile_processes or os.cpu_count() or 1


def _target(config: Config, gpu: Gpu | None, environment: Environment, roof: Roof) -> Target:
    if gpu is None:
        return Target(
            names=frozenset({"portable"}),
            sm_count=_HOST_SM_COUNT,
            environment=environment,
            compiling_disturbs=config.pool.kind is PoolKind.local,  # the workers of Ray are on nodes of their own
            roof=roof,
        )
    return Target(
        names=gpu.targets, sm_count=gpu.sm_count, environment=environment, compiling_disturbs=False, roof=roof
    )


def _permission(config: Config, settled: Settled, trusted: Sequence[str]) -> Callable[[str], bool]:
    """Whether a source may run: on a GPU any that the rules let through, natively only what is shipped or named."""
    if settled.backend is BackendKind.cuda or config.backend.run_model_code:
        return lambda _source: True
    known = [*shipped_sources(), *trusted]
    return lambda source: any(same_but_for_knobs(source, seed) for seed in known)
