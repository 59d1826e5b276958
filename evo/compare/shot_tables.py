"""Single shots as tables for a person: styles, pairs, replies, layers."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from evo.compare.funnel import STEPS
from evo.compare.shot_summary import ShotComparison
from evo.compare.shot_words import OFFLINE
from evo.compare.style_pairs import StylePair
from evo.compare.tables import gain_cell, new_table, p_cell, ratio_cell


def shot_tables(comparison: ShotComparison, *, offline: bool) -> Iterator[Table]:
    """In the order in which they are read."""
    by_style = (_styles(comparison), _gains(comparison))
    by_pair = (_ahead(comparison.pairs), _ratios(comparison.pairs))
    for table in (*by_style, *by_pair, _replies(comparison), _layers(comparison)):
        table.caption = Text(OFFLINE) if offline else None
        yield table


def _styles(comparison: ShotComparison) -> Table:
    table = new_table("from a question to a faster kernel, by style", ("style",), STEPS)
    for each in comparison.styles:
        table.add_row(each.style, *(str(getattr(each.funnel, step)) for step in STEPS))
    return table


def _gains(comparison: ShotComparison) -> Table:
    table = new_table("gain over the parent, where right", ("style",), ("mean, 95 %", "median"))
    for each in comparison.styles:
        table.add_row(each.style, gain_cell(each.gain), ratio_cell(each.median_gain))
    return table


def _ahead(pairs: Sequence[StylePair]) -> Table:
    columns = ("pairs", "ahead", "behind", "level", "sign test p", "p (Holm)")
    title = "the same question about the same parent: how often the second style was ahead"
    table = new_table(title, ("pair",), columns)
    for pair in pairs:
        counts = (pair.pairs, pair.second_ahead, pair.second_behind, pair.level)
        table.add_row(_name(pair), *map(str, counts), p_cell(pair.sign_test), p_cell(pair.sign_test_holm))
    return table


def _ratios(pairs: Sequence[StylePair]) -> Table:
    columns = ("mean, 95 %", "mean of parents' means", "median", "signed rank p")
    table = new_table("the second style's speed over the first's, where both are right", ("pair",), columns)
    for pair in pairs:
        table.add_row(
            _name(pair),
            gain_cell(pair.ratio),
            gain_cell(pair.ratio_by_parent),
            ratio_cell(pair.median_ratio),
            p_cell(None if pair.signed_rank is None else pair.signed_rank.p),
        )
    return table


def _replies(comparison: ShotComparison) -> Table:
    columns = ("median characters", "right, gain promised", "some scenario gained as much", "mean gained beyond noise")
    table = new_table("what the replies are like", ("style",), columns)
    for each in comparison.styles:
        counts = (each.reply_characters, each.promised, each.some_scenario, each.promised_faster)
        table.add_row(each.style, *map(str, counts))
    return table


def _layers(comparison: ShotComparison) -> Table:
    table = new_table("by the layer that was asked about", ("layer", "style"), ("shots", "gain over the parent, 95 %"))
    for each in comparison.layers:
        table.add_row(each.layer, each.style, str(each.shots), gain_cell(each.gain))
    return table


def _name(pair: StylePair) -> str:
    return f"{pair.first} / {pair.second}"
