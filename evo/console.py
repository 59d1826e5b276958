"""What a person sees of a run: its choices first, then how it goes, then a table that agrees with result.json."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from evo.audits import verdict_words
from evo.choices import Choice
from evo.history import Attempt, Outcome
from evo.tracking import Tracker
from fitness.evaluation import Evaluation, Status
from fitness.shown_text import shown_text
from population.individual import SEED

logger = logging.getLogger(__name__)

_TABLE_WIDTH = 94  # of a table of timings with its intervals
_WIDTH = 10_000  # where there is no terminal to ask: a table takes what it needs, and no line is broken or cut
_CHANGE_WIDTH = 100  # of the one line that tells what was changed


def open_console(*, stderr: bool = False) -> Console:
    """A console as wide as its terminal, or wide enough where the output goes to a file or a pipe."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)


@contextmanager
def plain_console(path: Path) -> Iterator[Console]:
    """A console that adds plain lines to a file."""
    with path.open("a", encoding="utf-8") as file:
        yield Console(file=file, width=_WIDTH)


def say(console: Console, line: str) -> None:
    """Print one line as it stands: never broken, so that it can be searched, and no word of it taken for a style."""
    console.print(Text(line), soft_wrap=True)


@dataclass(kw_only=True)
class RunConsole:
    """Tells one run's story: as a live line on a terminal, as plain lines elsewhere."""

    console: Console
    budget: int | None  # evaluations, where the run has such a limit
    # Of this part of the run alone: to count earlier ones, a resume would have to read all that they left.
    _told: int = 0  # evaluations
    _failed: Counter[str] = field(default_factory=Counter)  # those by status
    _childless: Counter[str] = field(default_factory=Counter)  # questions without a new kernel, by outcome
    _live: "_Live | None" = None

    def head(self, choices: Sequence[Choice], folder: str) -> None:
        """Say what was chosen and why, before anything is measured."""
        self.console.print(head_grid(choices))
        self._say(f"run: {folder}")

    @contextmanager
    def live(self) -> Iterator[None]:
        """Within it, a terminal shows a live line."""
        if not self.console.is_terminal:
            yield
            return
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            self._live = _Live(progress=progress, task=progress.add_task("evaluating the seed", total=self.budget))
            try:
                yield
            finally:
                self._live = None

    def judged(
        self, name: str, evaluation: Evaluation, tracker: Tracker, asked: Attempt | None, gain: float | None,
        operator: str = SEED,
    ) -> None:  # fmt: skip
        """A candidate was judged: what was asked, what was changed, what came of it; else the operator alone."""
        self._told += 1
        if evaluation.status is not Status.PASSED:
            self._failed[evaluation.status] += 1
        if asked is None:
            self._say(f"evaluation {tracker.evaluations}: {operator} {name}  {verdict(evaluation)}")
        else:
            self._say(f"evaluation {tracker.evaluations}, question {asked.number}: {asked.hint or 'no hint'}")
            beside_parent = "" if gain is None else f", {gain:.2f} × its parent"
            self._say(f"      {_first_line(asked.detail)} → {name}  {verdict(evaluation)}{beside_parent}")
        if self._live is not None:
            task, status = self._live.task, self._status(tracker)
            self._live.progress.update(task, completed=tracker.evaluations, description=status)

    def generation(self, number: int, tracker: Tracker) -> None:
        """A generation is complete."""
        if self._live is None:
            self._say(f"generation {number}: {self._status(tracker)}")

    def childless(self, attempt: Attempt) -> None:
        """A question was asked; tell where it led to no new candidate."""
        if attempt.outcome is Outcome.CHILD:
            return
        self._childless[attempt.outcome] += 1
        if attempt.outcome is not Outcome.DUPLICATE:
            self._say(f"question {attempt.number}: {attempt.outcome}: {attempt.detail}")

    def note(self, text: str) -> None:
        """One line for the user, now and in the run's log."""
        logger.info("%s", text)
        self._say(text)

    def farewell(self, result: Mapping[str, Any], best: Evaluation | None, folder: str, *, resumable: bool) -> None:
        """The outcome, scenario by scenario and in one line; how to go on where the run was interrupted."""
        if best is not None:
            self.console.print(evaluation_table(best, self.console.width))
        for line in result_lines(result):
            self._say(line)
        self._say(f"result: {folder}/result.json")
        if resumable:
            self._say(way_on(folder))

    def _status(self, tracker: Tracker) -> str:
        failed = f", failed: {_counted(self._failed)}" if self._failed else ""
        childless = f"  questions without a new kernel: {_counted(self._childless)}" if self._childless else ""
        part = f"; since the resume {self._told}" if self._told < tracker.evaluations else ""
        evaluations = f"evaluations {tracker.evaluations}{part}{failed}"
        return f"best {tracker.best_geomean:.4f} ×  {evaluations}{childless}  spend {tracker.spend_usd():.2f} USD"

    def _say(self, line: str) -> None:
        say(self.console, shown_text(line))


def way_on(folder: str) -> str:
    """What is said of a run that was interrupted."""
    return f"nothing is lost; go on with: evo evolve resume={folder}"


def verdict(evaluation: Evaluation) -> str:
    """An evaluation in one line: the geometric mean, or the status and the first line of its reason."""
    if evaluation.geomean is not None:
        return f"{evaluation.geomean:.4f} ×"
    return f"{evaluation.status}  {evaluation.reason.splitlines()[0]}"


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _CHANGE_WIDTH else f"{line[: _CHANGE_WIDTH - 1]}…"


def head_grid(choices: Sequence[Choice], further: Sequence[tuple[str, str]] = ()) -> Table:
    """What was chosen and why, then further pairs of name and value."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")  # a path is of use only whole
    for choice in choices:
        grid.add_row(Text(choice.what, style="bold"), Text(choice.value), Text(choice.why, style="dim"))
    for what, value in further:
        grid.add_row(Text(what, style="bold"), Text(value), "")
    return grid


@dataclass(frozen=True, kw_only=True)
class _Live:
    progress: Progress
    task: TaskID


def evaluation_table(evaluation: Evaluation, width: int) -> Table:
    """An evaluation's timings, scenario by scenario; where the width is short, without the intervals."""
    title = f"{evaluation.suite} on {evaluation.environment.device} ({evaluation.environment.backend})"
    columns = [f"{evaluation.environment.baseline} ms", "kernel ms", "speedup", "of roof", "95 % interval"]
    shown = len(columns) if width >= _TABLE_WIDTH else len(columns) - 1
    table = Table(title=title, box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("scenario", no_wrap=True)
    for column in columns[:shown]:
        table.add_column(column, justify="right", no_wrap=True)
    for timing in evaluation.timings:
        cells = (
            f"{timing.baseline_median_ms:.4f}",
            f"{timing.candidate_median_ms:.4f}",
            f"{timing.speedup:.4f}",
            "" if timing.roof_share is None else f"{timing.roof_share:.0%}",
            f"{timing.speedup_low:.3f}–{timing.speedup_high:.3f}",
        )
        table.add_row(timing.scenario, *cells[:shown])
    table.add_section()
    interval = f"{evaluation.geomean_low:.3f}–{evaluation.geomean_high:.3f}" if evaluation.geomean_low else ""
    if evaluation.geomean is not None:
        cells = ("", "", f"{evaluation.geomean:.4f}", "", interval)
        table.add_row("geometric mean", *cells[:shown])
    return table


def result_lines(result: Mapping[str, Any]) -> list[str]:
    """The last words of a run, out of its result.json."""
    seed, best = result["seed"], result["best"]
    lines = [f"stopped: {result['stop_reason']}"]
    if best is None:
        return [*lines, "no candidate passed"]
    beside_seed = ""
    if seed is not None:  # an audit may have refused it
        lines.append(f"seed {seed['id']}: {seed['geomean']:.4f} × {result['baseline']['name']} (geometric mean)")
        beside_seed = f", {best['geomean'] / seed['geomean']:.2f} × the seed"
    lines.append(f"best {best['id']}: {best['geomean']:.4f} × {result['baseline']['name']}{beside_seed}")
    lines.append(f"its worst scenario: {best['worst_scenario']} at {best['worst_speedup']:.4f} ×")
    lines.append(f"its audit: {verdict_words(best['audit'], best['audit_made'], best['audit_left_out'])}")
    return lines
