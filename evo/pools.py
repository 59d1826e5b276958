"""Who measures: the workers of the pool that is configured, and the evaluator over them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from evo.choices import Settled
from evo.config import BackendKind, Config, EvolutionKind
from evo.judging import EvaluatesAll
from evo.pool_config import PoolKind
from fitness.evaluator import Evaluator
from fitness.faults import EnvironmentFault
from fitness.pool import MeasuringWorker, PooledEvaluator
from fitness.probe import Gpu, Machine
from fitness.process_limits import ProcessLimits
from fitness.ray_worker import Place, RayWorker, in_cluster, place_of
from fitness.scenario import Suite
from fitness.worker import BackendKind as WorkerBackend
from fitness.worker import BaselineFacts, WorkerSettings, open_worker
from fitness.worker_pool import WorkerPool

_HOST_MEMORY = 8 << 30  # of address space beyond torch's own: the reference of a small suite, and the candidate


@contextmanager
def open_workers(config: Config, settled: Settled, machine: Machine) -> Iterator[Sequence[MeasuringWorker]]:
    """The workers, ended afterwards; of a local pool none starts before it is asked for something.

    Raises EnvironmentFault where the devices are not of one model.
    """
    with ExitStack() as stack:
        if config.pool.kind is PoolKind.ray:
            yield stack.enter_context(_ray_workers(config, settled))
            return
        yield [
            stack.enter_context(open_worker(settings))
            for settings in worker_settings(config, settled, pool_gpus(config, settled, machine))
        ]


@contextmanager
def _ray_workers(config: Config, settled: Settled) -> Iterator[Sequence[RayWorker]]:
    """Those that Ray has a place for, all on the settled device or on others of its model."""
    [settings] = worker_settings(config, settled, [settled.gpu] if settled.gpu else [])
    with in_cluster(config.pool.address or "auto") as resources, ExitStack() as stack:
        count = config.pool.workers or (int(resources.get("GPU", 0)) if settled.gpu else 1)
        if count == 0:
            raise EnvironmentFault("pool=ray: the cluster has no GPU; add a node with one, or use backend=host")
        workers = [stack.enter_context(closing(RayWorker(settings, start_s=config.pool.start_s))) for _ in range(count)]
        yield _of_one_model(workers, place_of(settled.device, settled.gpu))


def _of_one_model(workers: Sequence[RayWorker], here: Place) -> list[RayWorker]:
    """The workers, those that could be placed first; the pool tries the others again, and does without them."""
    with ThreadPoolExecutor(len(workers)) as threads:
        placing = {worker: threads.submit(worker.place) for worker in workers}
    placed = [worker for worker, found in placing.items() if found.exception() is None]
    if not placed:
        placing[workers[0]].result()
    others = {found.result() for worker, found in placing.items() if worker in placed} - {here}
    if others:
        listed = ", ".join(sorted(place.device for place in others))
        raise EnvironmentFault(
            f"the devices of the Ray cluster are not all of the model here ({here.device}) but also {listed}, whose "
            "figures are no comparison; give Ray the nodes of one model, and start the search on one of them"
        )
    return [*placed, *(worker for worker in workers if worker not in placed)]


@contextmanager
def pooled(
    config: Config, evaluator: Evaluator, workers: Sequence[MeasuringWorker], facts: BaselineFacts, *,
    compile_threads: int,
) -> Iterator[EvaluatesAll]:  # fmt: skip
    """The evaluator over all of the workers; a single one needs no pool in a generational search."""
    if len(workers) == 1 and config.evolution.kind is EvolutionKind.generational:
        yield evaluator
        return
    pool = WorkerPool(workers, like(facts, evaluator.suite))
    with PooledEvaluator(evaluator, pool, compile_threads=compile_threads) as judge:
        yield judge


def like(facts: BaselineFacts, suite: Suite) -> Callable[[MeasuringWorker], None]:
    """Raises EnvironmentFault for a worker that does not start, or has another baseline than the first one."""

    def ready(worker: MeasuringWorker) -> None:
        found = worker.baseline(suite)
        if (found.name, found.version) != (facts.name, facts.version):
            raise EnvironmentFault(
                f"its baseline is {found.name} {found.version}, and the first worker's {facts.name} {facts.version}"
            )

    return ready


def pool_gpus(config: Config, settled: Settled, machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs that measure, the settled one first; empty unless the backend is cuda. Raises EnvironmentFault."""
    if settled.gpu is None:
        return ()
    if config.backend.device is not None:
        return (settled.gpu,)
    named = config.pool.devices
    gpus = tuple(machine.gpus if named is None else (machine.gpus[index] for index in named))
    models = {(gpu.name, gpu.capability, gpu.sm_count) for gpu in gpus}
    if len(models) > 1:
        listed = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
        raise EnvironmentFault(
            f"the GPUs of the pool are of different models ({listed}), whose figures are no comparison; name those of "
            "one model, as in pool.devices=[0], or a single one with backend.device=0"
        )
    return gpus


def worker_settings(config: Config, settled: Settled, gpus: Sequence[Gpu]) -> list[WorkerSettings]:
    """What each worker is made of: one a GPU, or one on the host."""
    on_gpu = settled.backend is BackendKind.cuda
    one = WorkerSettings(
        backend=WorkerBackend.CUDA if on_gpu else WorkerBackend.HOST,
        baseline=settled.baseline.value,
        threads=config.backend.threads,
        limits=ProcessLimits() if on_gpu else ProcessLimits(memory_bytes=_HOST_MEMORY),
    )
    return [replace(one, device_index=gpu.index) for gpu in gpus] if on_gpu else [one]


def on_one_device(config: Config) -> Config:
    """The configuration with the pool's first GPU alone, or one to be claimed: for one kernel."""
    backend = config.backend
    if backend.device is None and not backend.claim:
        backend = replace(backend, device=(config.pool.devices or [0])[0])
    return replace(config, backend=backend, pool=replace(config.pool, kind=PoolKind.local, devices=None))
