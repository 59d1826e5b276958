"""What a person sees of a run: its choices first, then how it goes, then a table that agrees with result.json."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from evo.choices import Choice
from evo.history import Attempt, Outcome
from evo.stop import Standing
from fitness.evaluation import Evaluation, Status


@dataclass(kw_only=True)
class RunConsole:
    """Tells one run's story: as a live line on a terminal, as plain lines elsewhere."""

    console: Console
    budget: int | None  # evaluations, where the run has such a limit
    _failures: Counter[str] = field(default_factory=Counter)
    _progress: Progress | None = None
    _task: TaskID | None = None

    def head(self, choices: Sequence[Choice], folder: str) -> None:
        """Say what was chosen and why, before anything is measured."""
        grid = Table.grid(padding=(0, 2))
        for choice in choices:
            grid.add_row(Text(choice.what, style="bold"), Text(choice.value), Text(choice.why, style="dim"))
        grid.add_row(Text("run", style="bold"), Text(folder), "")
        self.console.print(grid)

    def start(self) -> None:
        """Begin the live line, on a terminal."""
        if self.console.is_terminal:
            self._progress = Progress(
                BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=self.console
            )
            self._task = self._progress.add_task("evaluating the seed", total=self.budget)
            self._progress.start()

    def judged(self, name: str, evaluation: Evaluation, standing: Standing) -> None:
        """A candidate was judged."""
        if evaluation.status is not Status.PASSED:
            self._failures[evaluation.status] += 1
        verdict = str(evaluation.status) if evaluation.geomean is None else f"{evaluation.geomean:.4f} ×"
        reason = f"  {evaluation.reason.splitlines()[0]}" if evaluation.reason else ""
        self._say(f"{name}  {verdict}{reason}")
        self._update(standing)

    def childless(self, attempt: Attempt) -> None:
        """A question led to no new candidate."""
        self._failures[attempt.outcome] += 1
        if attempt.outcome is not Outcome.DUPLICATE:
            self._say(f"mutation {attempt.number}: {attempt.outcome}: {attempt.detail}")

    def note(self, text: str) -> None:
        """One line for the user."""
        self._say(text)

    def stop(self) -> None:
        """End the live line."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _update(self, standing: Standing) -> None:
        failures = ", ".join(f"{count} {kind}" for kind, count in self._failures.most_common()) or "none"
        line = (
            f"best {standing.best_geomean:.4f} ×  evaluations {standing.evaluations}  generation {standing.generation}"
            f"  failures: {failures}  spend {standing.spend_usd:.2f} USD"
        )
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=standing.evaluations, description=line)
        else:
            self._say(f"    {line}")

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


def evaluation_table(evaluation: Evaluation) -> Table:
    """A PASSED evaluation, scenario by scenario."""
    table = Table(title=f"{evaluation.suite} on {evaluation.environment.device} ({evaluation.environment.backend})")
    for column in ("scenario", f"{evaluation.environment.baseline} ms", "candidate ms", "speedup", "95 % interval"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for timing in evaluation.timings:
        table.add_row(
            timing.scenario,
            f"{timing.baseline_median_ms:.4f}",
            f"{timing.candidate_median_ms:.4f}",
            f"{timing.speedup:.4f}",
            f"{timing.speedup_low:.3f}–{timing.speedup_high:.3f}",
        )
    table.add_section()
    table.add_row("geometric mean", "", "", f"{evaluation.geomean:.4f}", "")
    return table


def result_lines(result: dict[str, Any]) -> list[str]:
    """The last words of a run, out of its result.json."""
    seed, best = result["seed"], result["best"]
    lines = [f"stopped: {result['stop_reason']}"]
    if best is None:
        return [*lines, "no candidate passed"]
    gain = best["geomean"] / seed["geomean"]
    lines.append(f"seed {seed['id']}: {seed['geomean']:.4f} × {result['baseline']['name']} (geometric mean)")
    lines.append(f"best {best['id']}: {best['geomean']:.4f} × {result['baseline']['name']}, {gain:.2f} × the seed")
    lines.append(f"its worst scenario: {best['worst_scenario']} at {best['worst_speedup']:.4f} ×")
    return lines
