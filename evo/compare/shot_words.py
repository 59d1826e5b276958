"""What single shots can say of styles and what they cannot, in words."""

from collections.abc import Mapping, Sequence

from evo.compare.grouping import differing_keys
from evo.compare.runs import Run
from evo.compare.shot_summary import ShotComparison
from evo.compare.shots import Shot
from evo.compare.style_pairs import StylePair
from evo.compare.summary import ALPHA
from evo.compare.tables import gain_cell
from questions.question import Style

OFFLINE = "offline: phrasing has no effect by construction"
_NAMELESS = (Style.OPEN, Style.BARE)  # their prompts say nothing of the question


def shot_conclusions(comparison: ShotComparison) -> list[str]:
    """A sentence for each two styles, and one on what the compiler's advisories foretold."""
    tests = sum(1 for pair in comparison.pairs if pair.apart)
    said = [_verdict(pair, tests) for pair in comparison.pairs]
    if comparison.warned is None:
        return said
    gains = f"{gain_cell(comparison.unwarned)} without a compiler's advisory, {gain_cell(comparison.warned)} with one"
    return [*said, f"gain of right children, all styles together, mean and 95 %: {gains}"]


def shot_cautions(runs: Sequence[Run], shots: Sequence[Shot]) -> list[str]:
    """What a reader must know beside the figures."""
    offline = [run.name for run in runs if run.offline]
    found = [f"{', '.join(offline)}: {OFFLINE}"] if offline else []
    if differing := [key for key in differing_keys(runs, fixed=True) if key not in ("rng_seed", "seeds")]:
        found.append(f"the runs differ in {', '.join(differing)}: pairs are made within a run, and pooled over all")
    by_style = {name: [shot for shot in shots if shot.style == name] for name in map(str, Style)}
    by_style = {name: of_style for name, of_style in by_style.items() if of_style}
    return [
        *found,
        *_different_questions(by_style),
        *_nameless(by_style),
        *_same_prompts(by_style),
        *_sittings(shots),
        _dependent(shots),
    ]


def _different_questions(by_style: Mapping[str, Sequence[Shot]]) -> list[str]:
    """Rows of one table invite to be compared, and these may not be."""
    sets: dict[frozenset[tuple[str, str, str]], list[str]] = {}
    for style, shots in by_style.items():
        sets.setdefault(frozenset(shot.pair for shot in shots), []).append(style)
    if len(sets) == 1:
        return []
    of_each = "; ".join(f"{', '.join(styles)}: {len(asked)}" for asked, styles in sets.items())
    return [f"the styles have different sets of questions ({of_each}): their rows are no comparison, their pairs are"]


def _nameless(by_style: Mapping[str, Sequence[Shot]]) -> list[str]:
    styles = [style for style in _NAMELESS if style in by_style]
    if not styles:
        return []
    return [
        f"prompts of {' and '.join(styles)} do not name the question: their layer is that of the question that they "
        "are compared with"
    ]


def _same_prompts(by_style: Mapping[str, Sequence[Shot]]) -> list[str]:
    told = {style: [shot.prompt_sha256 for shot in shots if shot.prompt_sha256] for style, shots in by_style.items()}
    counts = [
        f"{style} {len(set(prompts))} for {len(prompts)}"
        for style, prompts in told.items()
        if len(set(prompts)) < len(prompts)
    ]
    if not counts:
        return []
    fewer = f"fewer distinct prompts than shots ({', '.join(counts)})"
    return [f"{fewer}: replies to the very same text are not independent"]


def _dependent(shots: Sequence[Shot]) -> str:
    parents = len({shot.parent for shot in shots})
    count = f"there {'is' if parents == 1 else 'are'} {parents} parent{'' if parents == 1 else 's'}"
    return (
        f"shots about one parent are not independent, and {count}: all that is pooled, p and pairs needed included, "
        "takes them as if they were; the mean of parents' means does not"
    )


def _sittings(shots: Sequence[Shot]) -> list[str]:
    right = {(shot.run, shot.child): shot.same_sitting for shot in shots if shot.child and shot.gain is not None}
    if not right:
        return []
    own, count = sum(right.values()), len(right)
    told = f"right children whose parents were measured in the same sitting: {own} of {count}"
    if own == count:
        return [f'{told}; "faster" is within one sitting']
    return [f'{told}; for the others "faster" is against figures from before the questions, perhaps of another sitting']


def _verdict(pair: StylePair, tests: int) -> str:
    names = f"{pair.first} against {pair.second}"
    seen = _seen(pair)
    if pair.sign_test is None or pair.sign_test_holm is None or pair.least_p is None:
        return f"{names}: neither was ahead in any pair ({seen})"
    p = f"sign test p = {pair.sign_test:.3g}"
    if tests > 1:
        p += f", {pair.sign_test_holm:.3g} after Holm's correction for {tests} pairs of styles"
    if pair.least_p > ALPHA:
        apart = f"{pair.apart} pair{'' if pair.apart == 1 else 's'} not level"
        least = f"with {apart} the least p is {pair.least_p:.3g}{' so corrected' if tests > 1 else ''}, above {ALPHA}"
        return f"{names}: too few pairs to say anything: {least} ({p}; {seen}); {_needed(pair, tests)}"
    if pair.sign_test_holm <= ALPHA:
        better = pair.second if pair.second_ahead > pair.second_behind else pair.first
        return f"{names}: {better} is better ({p}; {seen})"
    shown = f"no difference shown ({p}; {seen}), which does not show that there is none"
    return f"{names}: {shown}; {_needed(pair, tests)}"


def _seen(pair: StylePair) -> str:
    failed = f", both failed in {pair.both_failed} of these" if pair.both_failed else ""
    counts = (
        f"of {pair.pairs} pairs {pair.first} ahead in {pair.second_behind}, {pair.second} in {pair.second_ahead}, "
        f"level in {pair.level}{failed}"
    )
    if pair.ratio is None:
        return counts
    return f"{counts}; mean {pair.second} / {pair.first}, 95 %: {gain_cell(pair.ratio)}"


def _needed(pair: StylePair, tests: int) -> str:
    if pair.apart_needed is None:
        return "as often ahead as behind, so no number of pairs follows"
    alpha = f"{ALPHA}" + (f" / {tests}" if tests > 1 else "")
    share = f"{max(pair.second_ahead, pair.second_behind)} of {pair.apart} ahead"
    return (
        f"an effect as large as seen ({share}), which a small sample overstates, takes the sign test at {alpha} about "
        f"{pair.apart_needed} pairs not level, {pair.pairs_needed} with the level ones, for 80 % power"
    )
