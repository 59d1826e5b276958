"""The pictures of a page: the way to the best, the family tree, and several runs' ways side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from evo.report.account import Account, Measured
from evo.report.places import places
from evo.report.svg import Picture, colour, picture
from evo.report.thinning import CELLS, cut, drawn_apart
from evo.settings import ConfigError
from population.individual import BY_HAND
from population.records import Birth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = 8  # runs that one picture can tell apart by colour
_WIDE, _HIGH = 9.6, 4.0  # inches, at 72 units of the SVG each
_MOST_LABEL = 40  # characters
_DASHES = ("-", "--", ":", "-.")
_GAP = float("nan")  # where a line is interrupted
_NEAR_ONE = 0.6  # from which best on the baseline's own line is drawn


def require_pictures(find: Callable[[str], object] = find_spec) -> None:
    """Raise ConfigError where no picture can be made, before any work is done for it.

    `find` gives None for a module that is not installed.
    """
    if find("matplotlib") is None:
        raise ConfigError("a report needs matplotlib, which is not installed: pip install matplotlib")


def way_to_the_best(account: Account, name: str) -> Picture:
    """The best geomean so far over the evaluations, every kernel that passed, and the failures by their kind."""
    kinds = [kind for kind in account.statuses if kind != "PASSED"]
    with _figure(_HIGH + 0.22 * len(kinds)) as figure:
        heights = [_HIGH, 0.22 * len(kinds) + 0.05] if kinds else [_HIGH]
        rows = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        links = _draw_way(rows[0], account)
        rows[0].set_ylabel(_speedup(account))
        if kinds:
            _draw_failures(rows[1], account.measured, kinds)
        rows[-1].set_xlabel("evaluations")
        label = f"Best geometric mean so far over {len(account.measured)} evaluations, failures by kind below"
        return picture(figure, name, label, links)


def family_tree(account: Account, name: str) -> Picture:
    """Every kernel that passed by birth and geomean, joined to its parents; the champion's line stands out."""
    births, across = {birth.id: birth for birth in account.births}, places(account.births)
    heights = {each.kernel: each.geomean for each in account.measured if each.geomean is not None}
    with _figure(_HIGH) as figure:
        axes = figure.subplots()
        alive = drawn_apart([births[name] for name in heights], lambda birth: (across[birth.id], heights[birth.id]))
        _draw_edges(axes, alive, across, heights)
        axes.plot(
            [across[birth.id] for birth in alive], [heights[birth.id] for birth in alive],
            "o", color=colour("soft"), markersize=3.2, markeredgewidth=0,
        )  # fmt: skip
        links = _draw_line(axes, account, across)
        axes.set_xlabel("number of the question that made it (seeds are below 0, what came by hand between two)")
        axes.set_ylabel(_speedup(account))
        label = f"Family tree of {len(heights)} kernels that passed; the champion's line has {len(account.line)}"
        return picture(figure, name, label, links)


def side_by_side(accounts: Mapping[str, Account], name: str) -> Picture:
    """The best so far of several runs, each in its colour."""
    with _figure(_HIGH) as figure:
        axes = figure.subplots()
        for place, account in enumerate(accounts.values()):
            curve = account.best_so_far
            line = colour(f"series-{place % SERIES + 1}")
            dashes = _DASHES[place // SERIES % len(_DASHES)]
            axes.plot(*_corners(curve), color=line, linewidth=2, linestyle=dashes, drawstyle="steps-post")
            if curve:
                axes.plot([len(curve)], [curve[-1]], "o", color=line, markersize=5)
        axes.set_xlabel("evaluations")
        axes.set_ylabel("best speedup so far\n(geometric mean)")
        return picture(figure, name, f"Best geometric mean so far of {len(accounts)} runs", {})


@contextmanager
def _figure(high: float) -> Iterator["Figure"]:
    """A figure in the page's colours, drawn without a display and without pyplot's register of open figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink, muted, rule = colour("ink"), colour("muted"), colour("rule")
    settings: Any = {
        "font.size": 10, "text.color": ink, "axes.labelcolor": muted, "xtick.color": rule, "ytick.color": rule,
        "xtick.labelcolor": muted, "ytick.labelcolor": muted, "axes.edgecolor": rule, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": rule,
        "grid.linewidth": 0.6, "axes.axisbelow": True, "path.simplify": False, "text.parse_math": False,
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield Figure(figsize=(_WIDE, high), layout="constrained")


def _draw_way(axes: "Axes", account: Account) -> dict[str, str]:
    tops = {each.place for each in account.milestones}
    others = [each for each in account.measured if each.geomean is not None and each.place not in tops]
    drawn = drawn_apart(others, lambda each: (each.place, each.geomean or 0.0))
    axes.plot(
        [each.place for each in drawn], [each.geomean or 0.0 for each in drawn],
        "o", color=colour("soft"), markersize=3.6, markeredgewidth=0,
    )  # fmt: skip
    curve = [(place, best) for place, best in enumerate(account.best_so_far, start=1) if best > 0]
    best = account.best
    if best is None:
        return {}
    corners = [curve[0], *((each.place, each.geomean) for each in account.milestones[1:]), curve[-1]]
    axes.step([x for x, _ in corners], [y for _, y in corners], color=colour("accent"), linewidth=2, where="post")
    if best.geomean >= _NEAR_ONE:
        axes.axhline(1.0, color=colour("muted"), linewidth=1, dashes=(4, 3))
    axes.annotate(
        f"{best.geomean:.4f} ×", (best.place, best.geomean), xytext=(0, 7), textcoords="offset points",
        ha="right" if best.place > len(curve) / 2 else "left", color=colour("ink"), weight="bold",
    )  # fmt: skip
    axes.margins(y=0.12)
    shown = [each for each in account.milestones if each.timings and each.kernel in account.told]
    words = {f"#k-{each.kernel}": f"evaluation {each.place}: {each.geomean:.4f} ×, {each.kernel}" for each in shown}
    points = axes.scatter(
        [each.place for each in shown], [each.geomean for each in shown],
        s=46, color=colour("accent"), edgecolor=colour("surface"), linewidth=1.2, zorder=3, clip_on=False,
    )  # fmt: skip
    points.set_urls(list(words))
    return words


def _speedup(account: Account) -> str:
    return f"speedup over {_word(account.baseline)}\n(geometric mean)"


def _word(text: str) -> str:
    """What XML can hold, short enough for an axis."""
    return cut("".join(letter for letter in text if letter.isprintable()), _MOST_LABEL)


def _corners(curve: Sequence[float]) -> tuple[list[int], list[float]]:
    """Where a curve of steps changes, and its ends."""
    ends = (0, len(curve) - 1)
    places = [at for at in range(len(curve)) if at in ends or curve[at] != curve[at - 1]]
    return [at + 1 for at in places], [curve[at] for at in places]


def _draw_failures(axes: "Axes", measured: Sequence[Measured], kinds: Sequence[str]) -> None:
    """A stroke for each failure in its kind's row; those that would fall on one another are drawn once."""
    broad = max(1.0, len(measured) / (2 * CELLS[0]))
    for row, kind in enumerate(kinds):
        places = [each.place for each in measured if each.status == kind]
        apart = {int(place / broad): place for place in reversed(places)}
        xs = [x for place in apart.values() for x in (place, place, _GAP)]
        ys = [y for _ in apart for y in (row - 0.32, row + 0.32, _GAP)]
        axes.plot(xs, ys, color=colour("bad"), linewidth=1.3)
    counts = [sum(each.status == kind for each in measured) for kind in kinds]
    axes.set_yticks(range(len(kinds)), [f"{_word(kind)} {count}" for kind, count in zip(kinds, counts, strict=True)])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _draw_edges(
    axes: "Axes", children: Sequence[Birth], across: Mapping[str, float], heights: Mapping[str, float]
) -> None:
    xs: list[float] = []
    ys: list[float] = []
    for child in children:
        for parent in child.parent_ids:
            if parent in heights:
                xs += [across[parent], across[child.id], _GAP]
                ys += [heights[parent], heights[child.id], _GAP]
    axes.plot(xs, ys, color=colour("rule"), linewidth=0.7)


def _draw_line(axes: "Axes", account: Account, across: Mapping[str, float]) -> dict[str, str]:
    steps = [step for step in account.line if step.geomean is not None]
    if not steps:
        return {}
    xs, ys = [across[step.kernel] for step in steps], [step.geomean or 0.0 for step in steps]
    axes.plot(xs, ys, color=colour("accent"), linewidth=2.2)
    told = [place for place, step in enumerate(steps) if step.detail is not None]
    points = axes.scatter(
        [xs[place] for place in told], [ys[place] for place in told],
        s=46, color=colour("accent"), edgecolor=colour("surface"), linewidth=1.2, zorder=3, clip_on=False,
    )  # fmt: skip
    words = {f"#k-{steps[place].kernel}": f"{steps[place].kernel}: {ys[place]:.4f} ×" for place in told}
    points.set_urls(list(words))
    axes.annotate(
        "champion", (xs[0], ys[0]), xytext=(0, 7), textcoords="offset points", ha="right", color=colour("ink"),
        weight="bold",
    )  # fmt: skip
    axes.annotate(
        "by hand" if steps[-1].operator == BY_HAND else "seed", (xs[-1], ys[-1]), xytext=(6, -12),
        textcoords="offset points", color=colour("ink"), weight="bold",
    )  # fmt: skip
    axes.margins(y=0.12)
    return words
