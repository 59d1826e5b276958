"""The correctness stage: every output a candidate gives, on inputs it has not seen, against the reference.

The candidate goes first, on its own copy of the inputs. Its call has ended, and its output is set aside, before the
expected one is computed from inputs that are drawn again from their seed: no answer lies anywhere in memory while it
runs. (What was set aside stays on the device: a candidate has no host code, so nothing of it runs on after a call, and
the way to the host and back took half the time of all checks.)
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fitness.backends.backend import Backend, Bound, Tensors
from fitness.evaluation import ScenarioCheck, Status
from fitness.faults import CandidateFault
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.plan import Build, ScenarioPlan, SuitePlan
from fitness.reference import compute_reference
from fitness.row_sample import draw_block, judge_rows
from fitness.scenario import Scenario
from fitness.watch import Watch

SEED_BITS = 48  # a seed survives any JSON reader, which may hold numbers as float64
_KINDS_OF_LEFTOVERS = 2  # two calls in a row, from the first on, find both in their workspaces
_BLOCKS = 4  # of rows, of an output that is not held against a whole reference


def check_suite(
    plan: SuitePlan, binaries: Mapping[Build, Path], backend: Backend, settings: JudgeSettings, rng: random.Random,
    watch: Watch,
) -> Iterator[ScenarioCheck]:  # fmt: skip
    """The verdicts one by one, up to and with the first that fails: edges first, then the scenarios, cheapest first.

    All of them are checked on the first distribution before any on the others: most faults show on any inputs, and what
    is wrong in one scenario alone is found in a fraction of the time. The cheapest scenario of each build is called
    twice on the same inputs, and so is one whose workspaces would not hold all kinds of leftovers otherwise. Of a long
    scenario's outputs the one on the first distribution is judged whole, the others in blocks of rows drawn by lot.
    Raises CandidateFault where the candidate cannot be run, writes to its inputs or outside its outputs.
    """
    edges, scenarios = (sorted(plans, key=lambda each: each.scenario.flops) for plans in (plan.edges, plan.scenarios))
    cheapest = {each.build: each for each in reversed(scenarios)}
    for which in (slice(0, 1), slice(1, None)):
        for each in (*edges, *scenarios):
            few = each.has_leftovers and len(settings.distributions[1:]) < _KINDS_OF_LEFTOVERS
            how = _How(
                twice=which.start == 0 and (few or cheapest.get(each.build) is each),
                whole=settings.judged_whole(each.scenario.seqlen_k),
            )
            for check in _check_on(settings.distributions[which], each, binaries, backend, rng, watch, how):
                yield check
                if not check.passed:
                    return


@dataclass(frozen=True, kw_only=True)
class _How:
    """How a scenario's outputs are checked."""

    twice: bool  # in two calls on the same inputs, whose bits are compared
    whole: tuple[Distribution, ...]  # on these against a reference of all of it, on others of some rows


def _check_on(
    distributions: tuple[Distribution, ...], plan: ScenarioPlan, binaries: Mapping[Build, Path], backend: Backend,
    rng: random.Random, watch: Watch, how: _How,
) -> Iterator[ScenarioCheck]:  # fmt: skip
    if distributions:
        bound = bind_watched(plan, binaries, backend, watch)
        for distribution in distributions:
            yield _check(plan, bound, distribution, rng, watch, how)


def bind_watched(plan: ScenarioPlan, binaries: Mapping[Build, Path], backend: Backend, watch: Watch) -> Bound:
    """A scenario's candidate, loaded and laid out. Raises CandidateFault where the candidate is why that fails."""
    with watch.candidate(f"loading the candidate for {plan.scenario.name}"):
        return backend.bind(plan, binaries[plan.build])


def _check(
    plan: ScenarioPlan, bound: Bound, distribution: Distribution, rng: random.Random, watch: Watch, how: _How
) -> ScenarioCheck:
    """The verdict on a call, or on two of them, whose bits are compared; where they differ, each is judged.

    Two right calls may differ, where sums are taken in another order. But a race may show, or a trace of the first.
    """
    scenario, input_seed = plan.scenario, rng.getrandbits(SEED_BITS)
    draw_inputs(distribution, input_seed, bound.tensors.q, bound.tensors.k, bound.tensors.v)
    outputs = []
    for again in ("", "again ") if how.twice else ("",):
        bound.poison()
        with watch.candidate(f"running the candidate {again}on {scenario.name}, {distribution} inputs"):
            bound.replay.run()
        outputs += [_Output.of(bound.tensors)] if how.twice else []
    whole = distribution in how.whole
    stage = "correctness" if whole else "some rows"
    case = Case(scenario=scenario.name, distribution=distribution, stage=stage, input_seed=input_seed)
    if whole:
        check = judge_output(bound, scenario, distribution, case)
    else:
        check = _judge_some_rows(bound, scenario, distribution, case, rng)
    if how.twice:
        check = replace(check, deterministic=outputs[0] == outputs[1])
        if check.passed and not check.deterministic:
            outputs[0].put_into(bound.tensors)
            check = replace(judge_output(bound, scenario, distribution, case), deterministic=False)
    watch.harness(f"checked {scenario.name}, {distribution} inputs", check)
    return check


@dataclass(frozen=True, kw_only=True)
class _Output:
    """What a call gave, bit by bit, in the host's memory: on the device the next call could find it."""

    o: bytes
    lse: bytes

    @classmethod
    def of(cls, tensors: Tensors) -> "_Output":
        o, lse = (tensor.view(torch.uint8).cpu().numpy().tobytes() for tensor in (tensors.o, tensors.lse))
        return cls(o=o, lse=lse)

    def put_into(self, tensors: Tensors) -> None:
        for kept, tensor in ((self.o, tensors.o), (self.lse, tensors.lse)):
            found = torch.frombuffer(bytearray(kept), dtype=tensor.dtype)
            tensor.copy_(found.view(tensor.shape))


def judge_output(bound: Bound, scenario: Scenario, distribution: Distribution, case: Case) -> ScenarioCheck:
    """The verdict on what the candidate's last call left, on inputs drawn by `case.input_seed`.

    Raises CandidateFault(INCORRECT) where it wrote to its inputs, or outside its outputs.
    """
    found = _taken(bound, scenario, distribution, case.input_seed)
    return judge(found.o, found.lse, compute_reference(found.q, found.k, found.v, scenario), case)


def _judge_some_rows(
    bound: Bound, scenario: Scenario, distribution: Distribution, case: Case, rng: random.Random
) -> ScenarioCheck:
    """The same for blocks of rows that `rng` draws once the call has ended."""
    found = _taken(bound, scenario, distribution, case.input_seed)
    return judge_rows(found, scenario, (draw_block(scenario, rng) for _ in range(_BLOCKS)), case)


def _taken(bound: Bound, scenario: Scenario, distribution: Distribution, input_seed: int) -> Tensors:
    """Copies of what the candidate's last call gave, beside its inputs, drawn again. Raises as `judge_output` does."""
    found = bound.tensors
    o, lse = found.o.clone(), found.lse.clone()
    refuse_violations(bound, scenario)
    q, k, v = (torch.empty_like(tensor) for tensor in (found.q, found.k, found.v))
    draw_inputs(distribution, input_seed, q, k, v)
    _refuse_changed_inputs(found, q, k, v, scenario)
    return Tensors(q=q, k=k, v=v, o=o, lse=lse)


def refuse_violations(bound: Bound, scenario: Scenario) -> None:
    """Raises CandidateFault(INCORRECT) where any call so far wrote outside its outputs."""
    if violations := bound.violations():
        raise CandidateFault(Status.INCORRECT, f"on {scenario.name}: {violations}")


def _refuse_changed_inputs(
    found: Tensors, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scenario: Scenario
) -> None:
    pairs = {"q": (found.q, q), "k": (found.k, k), "v": (found.v, v)}
    # Compared as bits: a NaN written into an input is a change, and -0.0 for 0.0 is one too.
    changed = [name for name, (after, before) in pairs.items() if not _same_bits(after, before)]
    if changed:
        raise CandidateFault(
            Status.INCORRECT,
            f"on {scenario.name}: the candidate wrote to its inputs ({', '.join(changed)}); it may write to o, lse and "
            "its workspaces only",
        )


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int16), other.view(torch.int16))
