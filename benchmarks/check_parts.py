"""Where the correctness stage spends its time: its steps in their order, each waited for."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from fitness.backends.backend import Backend, Bound
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, SuitePlan
from fitness.reference import compute_reference
from fitness.scenario import Scenario


class Stopwatch:
    """Seconds by part. Waiting for the device after each part forbids what the stage may overlap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What runs inside, until the device is idle."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        yield
        torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def check_parts(
    plan: SuitePlan, binaries: Mapping[Build, Path], backend: Backend, settings: JudgeSettings
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by part, and by scenario, of one check of a suite with its edges. Raises CandidateFault."""
    watch, by_scenario = Stopwatch(), {}
    for each in (*plan.edges, *plan.scenarios):
        start = time.perf_counter()
        with watch.part("bind"):
            bound = backend.bind(each, binaries[each.build])
        for rng_seed, distribution in enumerate(settings.judged_whole(each.scenario.seqlen_k)):
            _check(bound, each.scenario, distribution, rng_seed, watch)
        by_scenario[each.scenario.name] = time.perf_counter() - start
    return watch.seconds, by_scenario


def _check(
    bound: Bound, scenario: Scenario, distribution: Distribution, rng_seed: int, watch: Stopwatch
) -> None:
    found = bound.tensors
    with watch.part("inputs"):
        draw_inputs(distribution, rng_seed, found.q, found.k, found.v)
        bound.poison()
    with watch.part("candidate"):
        bound.replay.run()
    with watch.part("output set aside"):
        o, lse = found.o.clone(), found.lse.clone()
    with watch.part("guard zones"):
        bound.violations()
    with watch.part("inputs again"):
        q, k, v = (torch.empty_like(tensor) for tensor in (found.q, found.k, found.v))
        draw_inputs(distribution, rng_seed, q, k, v)
    with watch.part("inputs compared"):
        for after, before in ((found.q, q), (found.k, k), (found.v, v)):
            torch.equal(after.view(torch.int16), before.view(torch.int16))
    with watch.part("reference"):
        reference = compute_reference(q, k, v, scenario)
    with watch.part("gate"):
        case = Case(scenario=scenario.name, distribution=distribution, stage="correctness", input_seed=rng_seed)
        judge(o, lse, reference, case)
