"""A comparison as tables for a person: runs, funnel, gains by layer, groups, pairs."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from evo.compare.funnel import STEPS
from evo.compare.outcomes import Arrival, RunOutcome
from evo.compare.statistics import MeanGain
from evo.compare.summary import Comparison, GroupOutcome, Pair
from fitness.score import Interval

_NONE = "–"


def tables(comparison: Comparison, label: str | None = None) -> Iterator[Table]:
    """In the order in which they are read; `label` goes with every table that sets groups side by side."""
    for table in _all(comparison):
        table.caption = None if label is None else Text(label)
        yield table


def _all(comparison: Comparison) -> Iterator[Table]:
    yield _runs(comparison)
    yield _funnels(comparison.groups)
    if any(group.gains for group in comparison.groups):
        yield _gains(comparison.groups)
    yield _groups(comparison)
    yield _pairs(comparison.pairs)
    if any(pair.paired for pair in comparison.pairs):
        yield _paired(comparison.pairs)


def _runs(comparison: Comparison) -> Table:
    measure = comparison.yardstick
    title = f"runs; at {measure.evaluations} evaluations each, target {measure.target:.4f} ×"
    table = new_table(
        title, ("run", comparison.by), ("made", "best", "at equal", "area", "to target", *_money(comparison))
    )
    for run in comparison.runs:
        table.add_row(Text(run.name), Text(run.group), *_run_cells(run, costly=bool(_money(comparison))))
    return table


def _money(comparison: Comparison) -> tuple[str, ...]:
    """The columns that say something only where something was spent."""
    return ("at equal USD", "USD to target") if any(run.spend_usd for run in comparison.runs) else ()


def _run_cells(run: RunOutcome, *, costly: bool) -> list[str]:
    cells = [
        str(run.evaluations),
        f"{run.best:.4f}",
        f"{run.equal_evaluations:.4f}",
        f"{run.area:.3f}",
        _arrival(run.evaluations_to_target, ".0f"),
    ]
    return [*cells, _number(run.equal_spend, ".4f"), _arrival(run.usd_to_target, ".2f")] if costly else cells


def _funnels(groups: Sequence[GroupOutcome]) -> Table:
    table = new_table("from a question to a faster kernel, summed over the runs", ("group",), (*STEPS, "re-added"))
    for group in groups:
        counts = [str(getattr(group.funnel, step)) for step in STEPS]
        table.add_row(Text(group.name), *counts, _share(group.lines_readded, group.lines_added))
    return table


def _gains(groups: Sequence[GroupOutcome]) -> Table:
    layers = sorted({layer for group in groups for layer in group.gains})
    title = "gain over the parent by layer, runs pooled: geometric mean, 95 % interval"
    table = new_table(title, ("layer",), tuple(group.name for group in groups))
    for layer in layers:
        table.add_row(layer, *(gain_cell(group.gains.get(layer)) for group in groups))
    return table


def _groups(comparison: Comparison) -> Table:
    costly = bool(_money(comparison))
    columns = ("runs", "median", "95 % interval", "reached target", "median to target", *(["USD"] if costly else []))
    table = new_table(f"groups by outcome={comparison.outcome}", (comparison.by,), columns)
    for group in comparison.groups:
        money = [_number(group.usd_to_target, ".2f")] if costly else []
        table.add_row(
            Text(group.name),
            str(group.runs),
            f"{group.median:.4f}",
            _interval(group.interval, ".4f"),
            f"{group.reached} of {group.runs}",
            _number(group.evaluations_to_target, ".0f"),
            *money,
        )
    return table


def _pairs(pairs: Sequence[Pair]) -> Table:
    columns = ("U", "p", "p (Holm)", "A12", "runs needed", "log-rank p", "p (Holm)")
    table = new_table("pairs of groups: Mann-Whitney, Vargha-Delaney, log-rank", ("pair",), columns)
    for pair in pairs:
        table.add_row(
            _name(pair),
            f"{pair.mann_whitney.statistic:g}",
            p_cell(pair.mann_whitney.p),
            p_cell(pair.mann_whitney_holm),
            f"{pair.a12:.3f}",
            _number(pair.runs_needed, "d"),
            p_cell(None if pair.log_rank is None else pair.log_rank.p),
            p_cell(pair.log_rank_holm),
        )
    return table


def _paired(pairs: Sequence[Pair]) -> Table:
    columns = ("pairs", "median difference", "signed rank p", "p (Holm)", "sign test p")
    table = new_table("runs that share rng_seed and seed kernels: the second minus the first", ("pair",), columns)
    for pair in pairs:
        if pair.paired is not None:
            table.add_row(
                _name(pair),
                str(pair.paired.pairs),
                f"{pair.paired.median_difference:+.4f}",
                p_cell(None if pair.paired.signed_rank is None else pair.paired.signed_rank.p),
                p_cell(pair.paired.signed_rank_holm),
                p_cell(pair.paired.sign_test),
            )
    return table


def new_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """An empty table; figures stand to the right."""
    table = Table(title=Text(title), box=box.SIMPLE)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for figure in figures:
        table.add_column(Text(figure), justify="right")
    return table


def _name(pair: Pair) -> Text:
    return Text(f"{pair.first} / {pair.second}")


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else format(value, form)


def p_cell(value: float | None) -> str:
    """A test's p."""
    return _number(value, ".3g")


def ratio_cell(value: float | None) -> str:
    """A ratio of two speeds."""
    return _number(value, ".3f")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else _NONE


def _arrival(arrival: Arrival, form: str) -> str:
    """Censored ones are known only to be longer."""
    return f"{'' if arrival.reached else '> '}{arrival.value:{form}}"


def _interval(interval: Interval | None, form: str) -> str:
    return _NONE if interval is None else f"{interval.low:{form}}–{interval.high:{form}}"


def gain_cell(gain: MeanGain | None) -> str:
    """A mean of ratios with its interval and count."""
    if gain is None:
        return _NONE
    interval = "" if gain.interval is None else f" ({_interval(gain.interval, '.3f')})"
    return f"{gain.mean:.3f}{interval} n={gain.count}"
