"""What a prompt says of a parent and of what was tried before: pure translation of records into prompt parts."""

from evo.history import Attempt, History, Outcome
from evo.moments import why_it_failed
from evo.prompt import AttemptPart, BuildFigure, ParentPart, ScenarioFigure
from fitness.evaluation import Evaluation, Status
from population.individual import Individual

ATTEMPTS_SHOWN = 8
_TELLS_NOTHING = (Outcome.DUPLICATE, Outcome.UNANSWERED)


def parent_part(history: History, parent: Individual) -> ParentPart:
    """A parent's source with its figures."""
    evaluation = history.evaluation(parent.id)
    if evaluation is None:
        return ParentPart(source=parent.source, status="not measured")
    return ParentPart(
        source=parent.source,
        status=str(evaluation.status),
        geomean=evaluation.geomean,
        scenarios=tuple(
            ScenarioFigure(
                name=timing.scenario,
                candidate_ms=timing.candidate_median_ms,
                baseline_ms=timing.baseline_median_ms,
                speedup=timing.speedup,
                roof_share=timing.roof_share,
            )
            for timing in evaluation.timings
        ),
        builds=_build_figures(evaluation),
    )


def attempt_parts(history: History, parent: Individual) -> tuple[AttemptPart, ...]:
    """The last attempts on the parent's line, oldest first, without the unanswered and those that repeated a kernel."""
    attempts = [each for each in history.lineage_attempts(parent.id) if each.outcome not in _TELLS_NOTHING]
    return tuple(_attempt_part(history, attempt) for attempt in attempts[-ATTEMPTS_SHOWN:])


def compiler_message(history: History, parent: Individual) -> str:
    """What the compiler said of the last child of this parent; "" unless that is why it failed."""
    children = [each for each in history.lineage_attempts(parent.id) if parent.id in each.parent_ids and each.child_id]
    if not children:
        return ""
    evaluation = history.evaluation(str(children[-1].child_id))
    return evaluation.reason if evaluation is not None and evaluation.status is Status.COMPILE_ERROR else ""


def _attempt_part(history: History, attempt: Attempt) -> AttemptPart:
    evaluation = history.evaluation(attempt.child_id) if attempt.child_id else None
    return AttemptPart(
        change=attempt.detail if attempt.outcome is Outcome.CHILD else "",
        status=str(attempt.outcome if evaluation is None else evaluation.status),
        reason=why_it_failed(history, attempt),
        gain=history.gain(attempt),
    )


def _build_figures(evaluation: Evaluation) -> tuple[BuildFigure, ...]:
    return tuple(
        BuildFigure(
            build=build.name,
            kernel=kernel.kernel,
            registers=kernel.registers,
            spill_bytes=kernel.spill_store_bytes + kernel.spill_load_bytes,
            shared_bytes=kernel.shared_bytes,
            advisories=build.advisories,
        )
        for build in evaluation.builds
        for kernel in build.kernels
    )
