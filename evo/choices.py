"""What "auto" comes to on this machine, and why: said in the first lines of every run."""

from dataclasses import dataclass

from evo.config import AnswererKind, BackendKind, BaselineKind, Config
from evo.suites import load_suite, to_suite
from fitness.faults import BaselineUnavailableError, EnvironmentFault
from fitness.probe import Gpu, Machine
from fitness.scenario import Suite

_ON_GPU_ALONE = (BaselineKind.fa3, BaselineKind.fa4, BaselineKind.cudnn)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One decision, as it is shown."""

    what: str
    value: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The configuration's open points, settled. `gpu` is None unless the backend is cuda."""

    backend: BackendKind
    baseline: BaselineKind
    suite: Suite
    seeds: tuple[str, ...]
    gpu: Gpu | None
    device: str  # the GPU's name, or the processor's
    choices: tuple[Choice, ...]


def settle(config: Config, machine: Machine) -> Settled:
    """Decide what the configuration leaves to us. Raises EnvironmentFault where what it asks for is not here."""
    backend, gpu, backend_choice = _backend(config, machine)
    _require_device_of_baseline(config.baseline.kind, backend, machine)
    baseline, baseline_choice = _baseline(config.baseline.kind, gpu)
    suite, suite_choice = _suite(config, gpu)
    seeds, seed_choice = _seeds(config, gpu)
    choices = (backend_choice, baseline_choice, suite_choice, seed_choice, _answerer(config), _style(config))
    device = gpu.name if gpu else machine.processor
    return Settled(
        backend=backend, baseline=baseline, suite=suite, seeds=seeds, gpu=gpu, device=device, choices=choices
    )


def _backend(config: Config, machine: Machine) -> tuple[BackendKind, Gpu | None, Choice]:
    kind = config.backend.kind
    asked = "as configured"
    if kind is BackendKind.recorded:
        return kind, None, Choice(what="backend", value=f"recorded ({config.backend.table})", why=asked)
    if kind is BackendKind.auto:
        kind = BackendKind.cuda if machine.gpus else BackendKind.host
        asked = "a GPU was found" if machine.gpus else machine.gpu_trouble or "no GPU was found"
    if kind is BackendKind.host:
        value = f"host ({machine.processor}, {config.backend.threads} thread{'s'[: config.backend.threads > 1]})"
        return kind, None, Choice(what="backend", value=value, why=f"{asked}; every figure is the processor's")
    gpu = _gpu(config, machine)
    return kind, gpu, Choice(what="backend", value=f"cuda ({gpu.name}, {gpu.arch}, device {gpu.index})", why=asked)


def _gpu(config: Config, machine: Machine) -> Gpu:
    """The GPU that candidates are compiled for, and measured on by the pool's first worker."""
    if not machine.gpus:
        raise EnvironmentFault(
            f"backend=cuda: {machine.gpu_trouble or 'no GPU was found'}; use backend=host, or ask `evo doctor`"
        )
    named, indices = "pool.devices", config.pool.devices or [0]
    if config.backend.device is not None:
        named, indices = "backend.device", [config.backend.device]
    for index in indices:
        if index >= len(machine.gpus):
            raise EnvironmentFault(f"{named}={index}: {len(machine.gpus)} GPU(s) are visible, counted from 0")
    return machine.gpus[indices[0]]


def _require_device_of_baseline(kind: BaselineKind, backend: BackendKind, machine: Machine) -> None:
    """Raise BaselineUnavailableError where candidates run on the processor, and the baseline only on a GPU."""
    if backend is not BackendKind.host or kind not in _ON_GPU_ALONE:
        return
    named = f"baseline={kind.value} runs on a GPU, and"
    if machine.gpus:
        raise BaselineUnavailableError(f"{named} backend=host on the processor; use baseline=sdpa, or backend=cuda")
    trouble = machine.gpu_trouble or "no GPU was found"
    raise BaselineUnavailableError(f"{named} {trouble}; use baseline=sdpa, or ask `evo doctor`")


def _baseline(kind: BaselineKind, gpu: Gpu | None) -> tuple[BaselineKind, Choice]:
    if kind is not BaselineKind.auto:
        return kind, Choice(what="baseline", value=kind.value, why="as configured")
    if gpu is None:
        why = "the default on a processor: torch's own attention, on the same threads"
        return BaselineKind.sdpa, Choice(what="baseline", value="sdpa", why=why)
    default = {9: BaselineKind.fa3, 10: BaselineKind.fa4}.get(gpu.capability[0], BaselineKind.sdpa)
    return default, Choice(what="baseline", value=default.value, why=f"the default on {gpu.arch}")


def _suite(config: Config, gpu: Gpu | None) -> tuple[Suite, Choice]:
    if config.suite.name != "auto":
        suite, why = to_suite(config.suite), "as configured"
    elif gpu is None:
        suite, why = load_suite("smoke"), "the default on a processor"
    else:
        suite, why = load_suite("core26"), "the default on a GPU"
    if not suite.scenarios:
        return suite, Choice(what="suite", value=f"{suite.name} ({len(suite.edges)} shapes, none timed)", why=why)
    return suite, Choice(what="suite", value=f"{suite.name} ({len(suite.scenarios)} scenarios)", why=why)


def _seeds(config: Config, gpu: Gpu | None) -> tuple[tuple[str, ...], Choice]:
    if config.seeds is not None:
        seeds, why = tuple(config.seeds), "as configured"
    elif gpu is not None and gpu.capability >= (8, 0):
        seeds, why = ("mma",), "the default on a GPU with tensor cores for bf16"
    else:
        seeds, why = ("tiled",), "the default where kernels must be portable"
    return seeds, Choice(what="seed", value=", ".join(seeds), why=why)


def _answerer(config: Config) -> Choice:
    if config.answerer.kind is AnswererKind.offline:
        why = "no language model: a question is answered by turning knobs of its layer"
        return Choice(what="answerer", value="offline", why=why)
    value = config.answerer.kind.value + (f" ({config.answerer.model})" if config.answerer.model else "")
    return Choice(what="answerer", value=value, why="as configured")


def _style(config: Config) -> Choice:
    offline = config.answerer.kind is AnswererKind.offline
    why = "phrasing has no effect by construction: the answerer is offline" if offline else "as configured"
    return Choice(what="style", value=", ".join(config.asked_styles), why=why)
