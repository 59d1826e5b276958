"""A comparison as a picture: the way to the best, and where the runs of each group ended."""

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from evo.compare.outcomes import best_so_far
from evo.compare.runs import Run
from evo.compare.summary import Comparison
from evo.settings import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")


def require_plots(path: Path, find: Callable[[str], object] = importlib.util.find_spec) -> None:
    """Raise ConfigError where no picture can be made of this name, before any work is done for it.

    `find` gives None for a module that is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {path}: expected a file's name that ends in {' or '.join(FORMATS)}")
    if find("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib, which is not installed: pip install matplotlib")


def picture(comparison: Comparison, runs: Sequence[Run], form: str, label: str | None = None) -> bytes:
    """The picture's bytes, the same for the same comparison; `form` is "png" or "svg", `label` its heading."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    curves = {run.name: best_so_far(run.measured) for run in runs}
    with mpl.rc_context({"svg.hashsalt": "evo compare", "svg.fonttype": "none"}):
        figure, (way, end) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
        if label is not None:
            figure.suptitle(label)
        _draw_way(way, comparison, curves)
        _draw_end(end, comparison)
        content = io.BytesIO()
        figure.savefig(content, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
        pyplot.close(figure)
    return content.getvalue()


def _draw_way(axes: "Axes", comparison: Comparison, curves: Mapping[str, Sequence[float]]) -> None:
    """Thin lines are runs; the thick one is the group's median as far as all runs of the comparison went."""
    for place, group in enumerate(comparison.groups):
        members = [curves[run.name] for run in comparison.runs if run.group == group.name]
        colour = f"C{place % 10}"
        for curve in members:
            axes.step(range(1, len(curve) + 1), curve, where="post", color=colour, alpha=0.3, linewidth=0.8)
        common = range(comparison.yardstick.evaluations)
        medians = [median(curve[at] for curve in members) for at in common]
        axes.step([at + 1 for at in common], medians, where="post", color=colour, linewidth=2.2, label=group.name)
    axes.axhline(comparison.yardstick.target, color="grey", linestyle=":", linewidth=1, label="target")
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="evaluations", ylabel="best geometric mean speedup so far (×)")
    axes.legend(title=comparison.by)


def _draw_end(axes: "Axes", comparison: Comparison) -> None:
    """Every run as a dot, the group's median and its interval beside them."""
    for place, group in enumerate(comparison.groups):
        values = [run.value(comparison.outcome) for run in comparison.runs if run.group == group.name]
        axes.plot([place - 0.1] * len(values), values, "o", color=f"C{place % 10}", alpha=0.5)
        below, above = 0.0, 0.0
        if group.interval is not None:
            below, above = group.median - group.interval.low, group.interval.high - group.median
        axes.errorbar(place + 0.1, group.median, [[below], [above]], fmt="D", color="black", capsize=4)
    axes.set_xticks(range(len(comparison.groups)), [group.name for group in comparison.groups])
    axes.set_xlim(-0.5, len(comparison.groups) - 0.5)
    axes.set(xlabel=comparison.by, ylabel=f"{comparison.outcome}: runs, median, 95 % interval")
