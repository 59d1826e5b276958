"""A single shot worked out: what each style led to, and pair by pair how any two of them differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from evo.attempt_events import recorded_attempts
from evo.compare.funnel import Funnel, funnel_of
from evo.compare.promises import best_scenario_gain, promised_gain
from evo.compare.runs import history_of
from evo.compare.statistics import MeanGain, holm, least_sign_p, mean_gain, pairs_needed, sign_test
from evo.compare.summary import ALPHA
from evo.history import Attempt, History, Outcome
from evo.remeasured import recall_again
from evo.reply import read_notes
from evo.run_settings import recorded_settings
from evo.settings import ConfigError
from population.archive_reader import read_archive
from population.run_folder import RunFolder
from questions.question import Style

_IN_ORDER = [str(style) for style in Style]


@dataclass(frozen=True, kw_only=True)
class Shot:
    """What one question about one parent in one style led to."""

    run: str
    parent: str
    question: str
    layer: str
    style: str
    outcome: str
    status: str  # of the kernel's evaluation; "" where there is no kernel
    gain: float | None  # over the parent; 1.0 for the parent given back; None without a right kernel
    reply_characters: int  # 0 without a reply
    promised: float | None  # see promises.py; None where the reply names no share
    best_scenario: float | None  # the greatest gain of any scenario; None without a right kernel
    funnel: Funnel
    parent_again: bool = False  # whether the parent was measured once more, beside its children

    @property
    def pair(self) -> tuple[str, str, str]:
        """What it shares with its counterparts in other styles: run, parent and question."""
        return (self.run, self.parent, self.question)


@dataclass(frozen=True, kw_only=True)
class StyleOutcome:
    """All shots of one style."""

    style: str
    funnel: Funnel
    gain: MeanGain | None  # over the parent, of the right kernels; None where there is none
    reply_characters: int  # the median of the replies; 0 where there is none
    promised: int  # right kernels whose reply names a gain
    kept: int  # those of them of which some scenario gained as much


@dataclass(frozen=True, kw_only=True)
class LayerOutcome:
    """The shots about one layer, in one style."""

    layer: str
    style: str
    shots: int
    gain: MeanGain | None


@dataclass(frozen=True, kw_only=True)
class StylePair:
    """Two styles over the pairs that both got a reply to."""

    first: str
    second: str
    pairs: int
    both_right: int
    ratio: MeanGain | None  # the second's speed over the first's, where both are right
    second_ahead: int  # a reply without a right kernel is behind any with one
    second_behind: int
    sign_test: float | None  # None where neither is ever ahead
    sign_test_holm: float | None
    least_p: float | None  # the least p that so many pairs without a tie could give, corrected likewise
    pairs_needed: int | None  # for 80 % power at the ratio seen; None where none can be told

    @property
    def apart(self) -> int:
        """Pairs without a tie."""
        return self.second_ahead + self.second_behind


@dataclass(frozen=True, kw_only=True)
class ShotComparison:
    """All that is shown or written of single shots."""

    shots: tuple[Shot, ...]
    styles: tuple[StyleOutcome, ...]
    pairs: tuple[StylePair, ...]
    layers: tuple[LayerOutcome, ...]


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
        again = recall_again(archive, history)
        replies = {reply.number: reply.text for reply in archive.replies()}  # of two attempts the later
    if not attempts:
        raise ConfigError(f"compare: {name}: its shots are not all judged; go on with the run first")
    shots = [_shot(name, attempt, history, replies.get(attempt.number, "")) for attempt in attempts]
    return [replace(shot, parent_again=shot.parent in again) for shot in shots]


def compare_shots(shots: Sequence[Shot]) -> ShotComparison:
    """The styles in the order of the documentation, and each two of them."""
    names = sorted({shot.style for shot in shots}, key=_IN_ORDER.index)
    pairs = [_pair(shots, first, second) for first, second in combinations(names, 2)]
    layers = sorted({shot.layer for shot in shots})
    return ShotComparison(
        shots=tuple(shots),
        styles=tuple(_style(name, [shot for shot in shots if shot.style == name]) for name in names),
        pairs=_corrected(pairs),
        layers=tuple(
            _layer(layer, name, [shot for shot in shots if (shot.layer, shot.style) == (layer, name)])
            for layer in layers
            for name in names
        ),
    )


def _is_single_shot(folder: RunFolder) -> bool:
    with read_archive(folder) as archive:
        return recorded_settings(archive).get("single_shot.questions") is not None


def _shot(run: str, attempt: Attempt, history: History, reply: str) -> Shot:
    evaluation = None if attempt.child_id is None else history.evaluation(attempt.child_id)
    parent = history.evaluation(attempt.parent_ids[0])
    gain = 1.0 if attempt.outcome is Outcome.NO_CHANGE else history.gain(attempt)
    if attempt.outcome is Outcome.DUPLICATE:  # another style came to the same kernel first; it is this one's too
        attempt = replace(attempt, outcome=Outcome.CHILD)
    return Shot(
        run=run,
        parent=attempt.parent_ids[0],
        question=attempt.question_id,
        layer=attempt.layer,
        style=attempt.style,
        outcome=str(attempt.outcome),
        status="" if evaluation is None else str(evaluation.status),
        gain=gain,
        reply_characters=len(reply),
        promised=promised_gain(read_notes(reply).expectation),
        best_scenario=best_scenario_gain(evaluation, parent) if evaluation and parent and gain else None,
        funnel=funnel_of([attempt], history),
    )


def _style(name: str, shots: Sequence[Shot]) -> StyleOutcome:
    told = [
        (shot.promised, shot.best_scenario)
        for shot in shots
        if shot.promised is not None and shot.best_scenario is not None
    ]
    return StyleOutcome(
        style=name,
        funnel=sum((shot.funnel for shot in shots), Funnel()),
        gain=_mean_gain(shots),
        reply_characters=round(median([shot.reply_characters for shot in shots if shot.reply_characters] or [0])),
        promised=len(told),
        kept=sum(best >= promised for promised, best in told),
    )


def _layer(layer: str, style: str, shots: Sequence[Shot]) -> LayerOutcome:
    return LayerOutcome(layer=layer, style=style, shots=len(shots), gain=_mean_gain(shots))


def _mean_gain(shots: Sequence[Shot]) -> MeanGain | None:
    gains = [shot.gain for shot in shots if shot.gain is not None]
    return mean_gain(gains) if gains else None


def _pair(shots: Sequence[Shot], first: str, second: str) -> StylePair:
    replied = [shot for shot in shots if shot.funnel.replies]
    sides = [{shot.pair: shot.gain for shot in replied if shot.style == style} for style in (first, second)]
    shared = [(sides[0][pair], sides[1][pair]) for pair in sides[0] if pair in sides[1]]
    ratios = [other / one for one, other in shared if one is not None and other is not None]
    differences = [(other or 0.0) - (one or 0.0) for one, other in shared]
    return StylePair(
        first=first,
        second=second,
        pairs=len(shared),
        both_right=len(ratios),
        ratio=mean_gain(ratios) if ratios else None,
        second_ahead=sum(each > 0 for each in differences),
        second_behind=sum(each < 0 for each in differences),
        sign_test=sign_test(differences),
        sign_test_holm=None,
        least_p=None,
        pairs_needed=pairs_needed(ratios, ALPHA),
    )


def _corrected(pairs: Sequence[StylePair]) -> tuple[StylePair, ...]:
    """The pairs with Holm's correction over those in which either style was ever ahead."""
    p = iter(holm([pair.sign_test for pair in pairs if pair.sign_test is not None]))
    least = iter(holm([least_sign_p(pair.apart) for pair in pairs if pair.apart]))
    return tuple(replace(pair, sign_test_holm=next(p), least_p=next(least)) if pair.apart else pair for pair in pairs)
