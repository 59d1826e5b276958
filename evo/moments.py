"""From what a search remembers to what the questions look at: the moment, the layers tried, the slots' values."""

from collections.abc import Sequence

from evo.history import Attempt, History, Outcome
from fitness.evaluation import Status
from population.individual import Individual
from questions.history import NO_CANDIDATE
from questions.history import Attempt as LineageAttempt
from questions.history import History as LineageHistory
from questions.question import Layer


def lineage_history(history: History, parents: Sequence[Individual]) -> LineageHistory:
    """The parents' line as the triggers read it: the attempts that made it, and those made on it since."""
    line = history.line(parents[0].id)
    attempts = line_attempts(history, parents[0])
    return LineageHistory(
        attempts=tuple(_lineage_attempt(history, attempt) for attempt in attempts),
        start_geomean=history.geomean(line[-1].id) or None,
        sources=tuple(individual.source for individual in reversed(line)),
        parents=len(parents),
    )


def line_attempts(history: History, parent: Individual) -> list[Attempt]:
    """The attempts that made the parent's line, and those made on the parent since; oldest first."""
    made_line = {individual.id for individual in history.line(parent.id)}
    return [
        attempt
        for attempt in history.lineage_attempts(parent.id)
        if parent.id in attempt.parent_ids or (attempt.outcome is Outcome.CHILD and attempt.child_id in made_line)
    ]


def layers_tried(attempts: Sequence[Attempt], last: int = 2) -> tuple[Layer, ...]:
    """The layers of the last attempts: where a stalled lineage need not be asked again."""
    return tuple(dict.fromkeys(Layer(attempt.layer) for attempt in attempts[-last:]))


def slot_values(history: History, parent: Individual) -> dict[str, str]:
    """What the parent's measurement can fill into a question; a slot without a value is left out."""
    evaluation = history.evaluation(parent.id)
    if evaluation is None or evaluation.worst is None:
        return {}
    best = max(evaluation.timings, key=lambda timing: timing.speedup)
    values = {"worst_scenario": evaluation.worst.scenario, "worst_speedup": f"{evaluation.worst.speedup:.3f}"}
    if best is not evaluation.worst:
        values["best_scenario"] = best.scenario
    if evaluation.worst.roof_share is not None:
        values["roof_share"] = f"{100 * evaluation.worst.roof_share:.0f} %"
    kernels = [kernel for build in evaluation.builds for kernel in build.kernels]
    advisories = [advisory for build in evaluation.builds for advisory in build.advisories]
    spills = max((kernel.spill_store_bytes for kernel in kernels), default=0)
    if kernels:
        values["registers"] = str(max(kernel.registers for kernel in kernels))
    if spills:
        values["spills"] = str(spills)
    if advisories:
        values["advisory"] = advisories[0]
    return values | _values_of_last_attempt(history, parent)


def _values_of_last_attempt(history: History, parent: Individual) -> dict[str, str]:
    attempts = line_attempts(history, parent)
    if not attempts:
        return {}
    values = {}
    gain = history.gain(attempts[-1])
    if gain is not None:
        values["gain"] = f"{gain:.2f}"
    failure = why_it_failed(history, attempts[-1]).strip()
    if failure:
        values["failure"] = failure.splitlines()[0]
    return values


def why_it_failed(history: History, attempt: Attempt) -> str:
    """The reason of an attempt that led to no PASSED child; "" where it passed or waits to be judged."""
    if attempt.child_id is None:
        return attempt.detail
    evaluation = history.evaluation(attempt.child_id)
    return "" if evaluation is None else evaluation.reason


def _suspicion(history: History, attempt: Attempt) -> str:
    audit = history.audit(attempt.child_id) if attempt.child_id else None
    return "" if audit is None else "; ".join(audit.why)


def _lineage_attempt(history: History, attempt: Attempt) -> LineageAttempt:
    child = attempt.child_id if attempt.outcome is Outcome.CHILD else None
    evaluation = history.evaluation(child) if child else None
    if child is None or evaluation is None:
        return LineageAttempt(status=NO_CANDIDATE, claim=attempt.claim)
    return LineageAttempt(
        status=str(evaluation.status),
        geomean=evaluation.geomean if evaluation.status is Status.PASSED else None,
        parent_geomean=history.geomean(history.best_parent(attempt)) or None,
        suspicion=_suspicion(history, attempt),
        noise=history.noise(child),
        claim=attempt.claim,
    )
