"""Single shots for a person and for other programs: tables, words, CSV and JSON."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from evo.compare.files import SCHEMA
from evo.compare.funnel import STEPS
from evo.compare.grouping import differing_keys
from evo.compare.runs import Run, flatten
from evo.compare.shots import Shot, ShotComparison, StylePair
from evo.compare.summary import ALPHA
from evo.compare.tables import gain_cell, new_table, p_cell
from population.atomic_file import strict_json

OFFLINE = "offline: phrasing has no effect by construction"


def shot_tables(comparison: ShotComparison, *, offline: bool) -> Iterator[Table]:
    """In the order in which they are read."""
    for table in (_styles(comparison), _pairs(comparison), _replies(comparison), _layers(comparison)):
        table.caption = Text(OFFLINE) if offline else None
        yield table


def shot_conclusions(comparison: ShotComparison) -> list[str]:
    """A sentence for each two styles."""
    tests = sum(1 for pair in comparison.pairs if pair.apart)
    return [_verdict(pair, tests) + _needed(pair) for pair in comparison.pairs]


def shot_cautions(runs: Sequence[Run], shots: Sequence[Shot]) -> list[str]:
    """What a reader must know beside the figures."""
    offline = [run.name for run in runs if run.offline]
    found = [f"{', '.join(offline)}: {OFFLINE}"] if offline else []
    if differing := [key for key in differing_keys(runs, fixed=True) if key not in ("rng_seed", "seeds")]:
        found.append(f"the runs differ in {', '.join(differing)}: pairs are made within a run, and pooled over all")
    found.append(_sitting(shots))
    return [*found, "shots about one parent are not independent: intervals and p hold for parents like these"]


def shots_as_csv(shots: Sequence[Shot]) -> str:
    """A header and one row a shot; empty where it has no such figure."""
    rows = [{key.replace(".", "_"): value for key, value in flatten(asdict(shot)).items()} for shot in shots]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def shots_as_json(comparison: ShotComparison, conclusions: Sequence[str], cautions: Sequence[str]) -> str:
    """Everything, with what was said of it in words."""
    record = {"schema": SCHEMA, **asdict(comparison), "conclusions": list(conclusions), "cautions": list(cautions)}
    return strict_json(record, sort_keys=False, indent=2) + "\n"


def _sitting(shots: Sequence[Shot]) -> str:
    parents = {(shot.run, shot.parent): shot.parent_again for shot in shots}
    again, count = sum(parents.values()), len(parents)
    earlier = '"faster" is against figures from before the questions, perhaps of another sitting'
    if again == count:
        return f'parents measured again beside their children: all {count}; "faster" is within one sitting'
    if again:
        return f"parents measured again beside their children: {again} of {count}; for the others {earlier}"
    return f"no parent was measured again beside its children: {earlier}"


def _styles(comparison: ShotComparison) -> Table:
    columns = (*STEPS, "gain over the parent, 95 %")
    table = new_table("from a question to a faster kernel, by style", ("style",), columns)
    for each in comparison.styles:
        table.add_row(each.style, *(str(getattr(each.funnel, step)) for step in STEPS), gain_cell(each.gain))
    return table


def _pairs(comparison: ShotComparison) -> Table:
    columns = ("pairs", "both right", "second / first, 95 %", "ahead", "behind", "sign test p", "p (Holm)")
    table = new_table("the same question about the same parent: the second style beside the first", ("pair",), columns)
    for pair in comparison.pairs:
        table.add_row(
            f"{pair.first} / {pair.second}",
            str(pair.pairs),
            str(pair.both_right),
            gain_cell(pair.ratio),
            str(pair.second_ahead),
            str(pair.second_behind),
            p_cell(pair.sign_test),
            p_cell(pair.sign_test_holm),
        )
    return table


def _needed(pair: StylePair) -> str:
    if pair.pairs_needed is None or pair.ratio is None:
        return ""
    seen = f"{pair.second} {pair.ratio.mean:.3f} times as fast as {pair.first}"
    return f"; for 80 % power at what was seen ({seen}) it takes about {pair.pairs_needed} pairs"


def _replies(comparison: ShotComparison) -> Table:
    columns = ("median characters", "promise a gain", "kept by some scenario")
    table = new_table("what the replies are like", ("style",), columns)
    for each in comparison.styles:
        table.add_row(each.style, str(each.reply_characters), str(each.promised), str(each.kept))
    return table


def _layers(comparison: ShotComparison) -> Table:
    table = new_table("by the layer that was asked about", ("layer", "style"), ("shots", "gain over the parent, 95 %"))
    for each in comparison.layers:
        table.add_row(each.layer, each.style, str(each.shots), gain_cell(each.gain))
    return table


def _verdict(pair: StylePair, tests: int) -> str:
    names = f"{pair.first} against {pair.second}"
    if pair.sign_test_holm is None or pair.least_p is None:
        return f"{names}: neither was ahead in any of {pair.pairs} pairs"
    counts = f"{pair.first} ahead in {pair.second_behind}, {pair.second} in {pair.second_ahead} of {pair.pairs} pairs"
    if pair.least_p > ALPHA:
        corrected = f" after Holm's correction for {tests} pairs of styles" if tests > 1 else ""
        least = f"with {pair.apart} apart the least p is {pair.least_p:.3g}{corrected}, above {ALPHA}"
        return f"{names}: too few pairs to say anything: {least} ({counts})"
    p = f"p = {pair.sign_test_holm:.3g}" + (" after Holm's correction" if tests > 1 else "")
    if pair.sign_test_holm <= ALPHA:
        better = pair.second if pair.second_ahead > pair.second_behind else pair.first
        return f"{names}: {better} is better ({p}; {counts})"
    return f"{names}: no difference shown ({p}; {counts}), which does not show that there is none"
