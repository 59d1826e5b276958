"""The shots of a single shot, one by one, as its archive has them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from evo.attempt_events import recorded_attempts
from evo.compare.funnel import Funnel, funnel_of
from evo.compare.promises import best_scenario_gain, promised_gain
from evo.compare.runs import history_of
from evo.history import Attempt, History, Outcome
from evo.remeasured import parents_beside
from evo.reply import read_notes
from evo.run_settings import recorded_settings
from evo.settings import ConfigError
from fitness.evaluation import Evaluation
from population.archive_reader import read_archive
from population.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Shot:
    """What one question about one parent in one style led to."""

    run: str
    parent: str
    question: str
    layer: str
    style: str
    outcome: str
    child: str  # the kernel's id; "" without one
    status: str  # of the kernel's evaluation; "" where there is no kernel
    gain: float | None  # over the parent; 1.0 for the parent given back; None without a right kernel
    noise: float  # of the gain's child, as a share (evo/noise.py); the parent's where it was given back
    prompt_sha256: str  # of the text that was put first; "" where the archive lacks it
    reply_characters: int  # 0 without a reply
    promised: float | None  # see promises.py; None where the reply names none
    best_scenario: float | None  # the greatest gain of any scenario; None without a right kernel
    funnel: Funnel
    same_sitting: bool  # whether the gain is over what the parent was in the sitting of its child

    @property
    def pair(self) -> tuple[str, str, str]:
        """What it shares with its counterparts in other styles: run, parent and question."""
        return (self.run, self.parent, self.question)


def are_single_shots(runs: Mapping[str, RunFolder]) -> bool:
    """Whether these runs are single shots and no searches. Raises ConfigError where some are and some are not."""
    single = [name for name, folder in runs.items() if _is_single_shot(folder)]
    if single and len(single) < len(runs):
        others = next(name for name in runs if name not in single)
        raise ConfigError(f"compare: {single[0]} is a single shot and {others} a search; compare them by themselves")
    return bool(single)


def read_shots(name: str, folder: RunFolder) -> list[Shot]:
    """The shots of a run, by their numbers. Raises ConfigError where they are not all judged."""
    with read_archive(folder) as archive:
        attempts = recorded_attempts(archive)
        history = history_of(archive, list(archive.individuals()), attempts)
        beside = parents_beside(name, archive)
        prompts = {prompt.number: _sha256(prompt.text) for prompt in archive.prompts() if prompt.attempt == 0}
        replies = {reply.number: reply.text for reply in archive.replies()}  # of two attempts the later
    if not attempts:
        raise ConfigError(f"compare: {name}: its shots are not all judged; go on with the run first")
    return [
        _shot(
            name,
            attempt,
            history,
            _parent_beside(attempt, history, beside),
            prompt_sha256=prompts.get(attempt.number, ""),
            reply=replies.get(attempt.number, ""),
        )
        for attempt in attempts
    ]


def _is_single_shot(folder: RunFolder) -> bool:
    with read_archive(folder) as archive:
        return recorded_settings(archive).get("single_shot.questions") is not None


def _shot(
    run: str, attempt: Attempt, history: History, beside: Evaluation | None, *, prompt_sha256: str, reply: str
) -> Shot:  # fmt: skip
    known = _known(attempt, history, beside)
    parent = known.evaluation(attempt.parent_ids[0])
    evaluation = None if attempt.child_id is None else known.evaluation(attempt.child_id)
    gain = 1.0 if attempt.outcome is Outcome.NO_CHANGE else known.gain(attempt)
    measured = attempt.parent_ids[0] if attempt.outcome is Outcome.NO_CHANGE else attempt.child_id
    if attempt.outcome is Outcome.DUPLICATE:  # another style came to the same kernel first; it is this one's too
        attempt = replace(attempt, outcome=Outcome.CHILD)
    return Shot(
        run=run,
        parent=attempt.parent_ids[0],
        question=attempt.question_id,
        layer=attempt.layer,
        style=attempt.style,
        outcome=str(attempt.outcome),
        child=attempt.child_id or "",
        status="" if evaluation is None else str(evaluation.status),
        gain=gain,
        noise=0.0 if measured is None else known.noise(measured),
        prompt_sha256=prompt_sha256,
        reply_characters=len(reply),
        promised=promised_gain(read_notes(reply).expectation),
        best_scenario=best_scenario_gain(evaluation, parent) if evaluation and parent and gain else None,
        funnel=funnel_of([attempt], known),
        same_sitting=beside is not None,
    )


def _parent_beside(
    attempt: Attempt, history: History, beside: Mapping[str, Mapping[str, Evaluation]]
) -> Evaluation | None:  # fmt: skip
    """The parent in the sitting of its child; None where that is not known, and where an audit refused the parent."""
    parent = attempt.parent_ids[0]
    if attempt.child_id is None or history.geomean(parent) == 0.0:
        return None
    return beside.get(attempt.child_id, {}).get(parent)


def _known(attempt: Attempt, history: History, beside: Evaluation | None) -> History:
    """What one shot is told by: its own two evaluations, for each child may have its parent's of another sitting."""
    known = History()
    for name in (attempt.parent_ids[0], attempt.child_id):
        if name is not None and (evaluation := history.evaluation(name)):
            known.add_evaluation(name, evaluation)
    if beside is not None:
        known.add_evaluation(attempt.parent_ids[0], beside)
    return known


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
