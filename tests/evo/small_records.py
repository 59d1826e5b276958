"""Makers of small records for tests: an evaluation, an individual, an attempt, each with what a test leaves open."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

from evo.history import Attempt, History, Outcome
from fitness.evaluation import BuildReport, Environment, Evaluation, KernelResources, ScenarioTiming, Status
from population.individual import Individual, set_fitness

ENVIRONMENT = Environment(
    backend="recorded", device="test device", driver="1.0", compiler="test 1.0", baseline="sdpa", baseline_version="2.0"
)


def timing(scenario: str, speedup: float, *, low: float | None = None, high: float | None = None) -> ScenarioTiming:
    """A scenario that the baseline takes 1 ms for."""
    return ScenarioTiming(
        scenario=scenario,
        candidate_ms=(1 / speedup,),
        baseline_ms=(1.0,),
        candidate_median_ms=1 / speedup,
        baseline_median_ms=1.0,
        speedup=speedup,
        speedup_low=speedup if low is None else low,
        speedup_high=speedup if high is None else high,
        tflops=1.0,
        baseline_difference_max=0.0,
        baseline_difference_rms=0.0,
    )


def passed(source: str, speedups: Mapping[str, float], *, suite: str = "tiny") -> Evaluation:
    """A PASSED evaluation with these speedups."""
    geomean = math.exp(math.fsum(map(math.log, speedups.values())) / len(speedups))
    return replace(
        _blank(source, suite),
        status=Status.PASSED,
        reason="",
        geomean=geomean,
        timings=tuple(timing(name, speedup) for name, speedup in speedups.items()),
    )


def within(source: str, speed: float, factor: float) -> Evaluation:
    """A PASSED evaluation of one scenario whose interval reaches this factor either way."""
    timed = timing("only", speed, low=speed / factor, high=speed * factor)
    return replace(passed(source, {"only": speed}), timings=(timed,))


def failed(source: str, status: Status, reason: str, *, suite: str = "tiny") -> Evaluation:
    """An evaluation that ended before any timing."""
    return replace(_blank(source, suite), status=status, reason=reason)


def build(*advisories: str, registers: int = 40, stores: int = 0, loads: int = 0) -> BuildReport:
    """What a compiler said of a build of one kernel."""
    kernel = KernelResources(
        kernel="attention_forward",
        registers=registers,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        stack_bytes=0,
        shared_bytes=512,
    )
    return BuildReport(name="HEAD_DIM=64", kernels=(kernel,), advisories=advisories)


def individual(name: str, birth: int, *parents: Individual, geomean: float | None = None) -> Individual:
    """An individual that is named like its source; without parents a seed."""
    made = Individual.from_source(
        name,
        birth=birth,
        generation=0 if not parents else 1 + max(parent.generation for parent in parents),
        operator=("seed", "mutate", "crossover")[len(parents)],
        parent_ids=tuple(parent.id for parent in parents),
        question_id="q" if parents else None,
    )
    if geomean is not None:
        set_fitness(made, geomean)
    return made


def attempt(
    number: int,
    parents: tuple[Individual, ...],
    child: Individual | None,
    *,
    outcome: Outcome | None = None,
    detail: str = "",
    claim: str = "",
    layer: str = "memory",
    generation: int | None = None,
) -> Attempt:
    """An attempt on these parents; without a child it was unreadable, unless `outcome` says otherwise."""
    return Attempt(
        number=number,
        generation=1 + max(parent.generation for parent in parents) if generation is None else generation,
        operator="mutate" if len(parents) == 1 else "crossover",
        parent_ids=tuple(parent.id for parent in parents),
        question_id=f"q{number}",
        layer=layer,
        moment="any",
        style="question",
        hint="Why?",
        outcome=outcome or (Outcome.CHILD if child else Outcome.UNREADABLE),
        detail=detail,
        claim=claim,
        child_id=child.id if child else None,
    )


def known(history: History, one: Individual, evaluation: Evaluation | None = None) -> Individual:
    """The individual, now in the history."""
    history.add_individual(one)
    if evaluation is not None:
        history.add_evaluation(one.id, evaluation)
    return one


def _blank(source: str, suite: str) -> Evaluation:
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Evaluation(
        key=hashlib.sha256(f"key of {digest}".encode()).hexdigest(),
        source_sha256=digest,
        suite=suite,
        status=Status.INVALID,
        reason="not judged",
        environment=ENVIRONMENT,
    )
