"""What is known of a candidate once it has been judged: the full record, of which fitness is one number."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How far a candidate came. Only PASSED has a score."""

    INVALID = "INVALID"  # the manifest or the static rules
    UNSUPPORTED = "UNSUPPORTED"  # a scenario of the suite lies outside its `supports`
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    INCORRECT = "INCORRECT"
    STOPPED_EARLY = "STOPPED_EARLY"  # partial timings, no score
    PASSED = "PASSED"


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What the compiler said of one build (one set of -D flags) of a candidate."""

    name: str  # the defines that tell this build from the others, "HEAD_DIM=64 CAUSAL=1"
    kernels: tuple["KernelResources", ...]
    advisories: tuple[str, ...]  # ptxas's warnings: "wgmma … serialized" foretells a collapse


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """Per thread and per block use of one kernel, from ptxas."""

    kernel: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int  # static only; dynamic shared memory is the manifest's


@dataclass(frozen=True, kw_only=True)
class ScenarioCheck:
    """The gate's verdict on one scenario with one distribution of inputs. Errors are against the fp32 reference."""

    scenario: str
    distribution: str
    stage: str  # "correctness", "timed" or "audit"
    input_seed: int  # drawn per evaluation, published afterwards
    passed: bool
    reason: str  # "" where passed
    max_error: float | None  # None where the output is not finite
    max_error_bound: float
    relative_rms_error: float | None
    relative_rms_bound: float
    mean_error: float | None
    mean_error_bound: float
    lse_max_error: float | None
    lse_max_bound: float
    row_error: float | None = None  # relative RMS of the output row that stands worst to its bound
    row_error_bound: float | None = None
    deterministic: bool | None = None  # a second call on the same inputs gave the same bits; None where none was made


@dataclass(frozen=True, kw_only=True)
class ScenarioTiming:
    """One scenario timed beside the baseline, interleaved, every call on fresh inputs."""

    scenario: str
    candidate_ms: tuple[float, ...]  # every timed call
    baseline_ms: tuple[float, ...]
    candidate_median_ms: float
    baseline_median_ms: float
    speedup: float  # baseline_median_ms / candidate_median_ms
    speedup_low: float  # 95 % bootstrap interval of that ratio, over the calls of this evaluation
    speedup_high: float
    tflops: float  # of the candidate
    baseline_difference_max: float  # |candidate − baseline| on the timed inputs, where both were kept
    baseline_difference_rms: float
    baseline_setting: str = "default"  # the fastest of those that the baseline has for this scenario
    roof_ms: float | None = None  # what the device's roof allows at best (fitness/roof.py)
    clocks: Mapping[str, float] = field(default_factory=dict)  # after the last timed call, where they can be read

    @property
    def roof_share(self) -> float | None:
        """roof_ms / candidate_median_ms; above 1 where the kernel outdoes what the roof was measured with."""
        return None if self.roof_ms is None else self.roof_ms / self.candidate_median_ms


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What an evaluation's numbers depend on besides the source."""

    backend: str  # cuda | host
    device: str  # the GPU's name, or the processor's
    driver: str
    compiler: str  # "NVRTC 13.0", "g++ 12.2.0"
    baseline: str
    baseline_version: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The record of one candidate on one suite. Fields that a status does not reach are empty.

    Raises ValueError where the fields contradict the status: a score without a pass, a pass without one; and for a
    score that is no positive finite number.
    """

    key: str  # identifies what was measured: source, contract, flags, compiler, suite, baseline, device
    source_sha256: str
    suite: str
    status: Status
    reason: str  # why it is not PASSED, in words that a model can use; "" where it is
    environment: Environment
    builds: tuple[BuildReport, ...] = ()
    checks: tuple[ScenarioCheck, ...] = ()
    timings: tuple[ScenarioTiming, ...] = ()
    geomean: float | None = None
    geomean_low: float | None = None  # 95 % bootstrap interval of the geometric mean, likewise
    geomean_high: float | None = None
    compile_s: float = 0.0
    check_s: float = 0.0
    time_s: float = 0.0
    deterministic: bool | None = None  # of all its builds; None where none was called twice. No fault by itself
    timed: bool = True  # False for a suite that is checked and never timed: to pass there is no score

    def __post_init__(self) -> None:
        scored = self.status is Status.PASSED and (self.timed or bool(self.timings))
        if scored != (self.geomean is not None):
            raise ValueError(f"evaluation: {self.status} with geomean {self.geomean}")
        if self.geomean is not None and (type(self.geomean) is not float or not 0 < self.geomean < math.inf):
            raise ValueError(f"evaluation: geomean is {self.geomean!r}; expected a positive finite float")
        if self.timings and self.status not in (Status.PASSED, Status.STOPPED_EARLY):
            raise ValueError(f"evaluation: {self.status} has no timings to keep")
        if (self.status is Status.PASSED) != (self.reason == ""):
            raise ValueError(f"evaluation: {self.status} with the reason {self.reason!r}")

    @property
    def speedups(self) -> dict[str, float]:
        """Scenario name to speedup; empty unless PASSED."""
        if self.status is not Status.PASSED:
            return {}
        return {timing.scenario: timing.speedup for timing in self.timings}

    @property
    def worst(self) -> ScenarioTiming | None:
        """The scenario with the least speedup; None unless PASSED."""
        if self.status is not Status.PASSED or not self.timings:
            return None
        return min(self.timings, key=lambda timing: timing.speedup)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, which `from_json` takes back. Raises ValueError for a figure that is not finite."""
        record = {name: _plain(value) for name, value in vars(self).items()}
        _require_finite(record, "evaluation")
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Evaluation":
        """The evaluation that `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        fields = dict(record)
        fields["status"] = Status(fields["status"])
        fields["environment"] = Environment(**fields["environment"])
        fields["builds"] = tuple(_build_report(build) for build in fields["builds"])
        fields["checks"] = tuple(ScenarioCheck(**check) for check in fields["checks"])
        fields["timings"] = tuple(_timing(timing) for timing in fields["timings"])
        return cls(**fields)


def always_deterministic(checks: Iterable[ScenarioCheck]) -> bool | None:
    """Whether every second call gave the bits of the first; None where there was none."""
    told = [check.deterministic for check in checks if check.deterministic is not None]
    return all(told) if told else None


def _plain(value: object) -> object:
    """A field in JSON types. (dataclasses.asdict would make a deep copy of each of its thousands of numbers.)"""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return {name: _plain(each) for name, each in vars(value).items()} if is_dataclass(value) else value


def _require_finite(value: object, place: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}, which JSON has no word for")
    if isinstance(value, Mapping):
        for name, each in value.items():
            _require_finite(each, f"{place}.{name}")
    if isinstance(value, tuple):
        for index, each in enumerate(value):
            _require_finite(each, f"{place}[{index}]")


def _build_report(record: Mapping[str, Any]) -> BuildReport:
    kernels = tuple(KernelResources(**kernel) for kernel in record["kernels"])
    return BuildReport(name=record["name"], kernels=kernels, advisories=tuple(record["advisories"]))


def _timing(record: Mapping[str, Any]) -> ScenarioTiming:
    samples = {name: tuple(record[name]) for name in ("candidate_ms", "baseline_ms")}
    return ScenarioTiming(**{**record, **samples})
