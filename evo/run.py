"""One run, from its configuration to its result.json: `evo evolve` makes one, a sweep makes many."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from evo.choices import Settled, settle
from evo.config import Config, EvolutionKind
from evo.console import RunConsole
from evo.crowning import crown_best
from evo.evaluation_records import evaluation_of
from evo.finished import amount_done, nothing_left
from evo.loggers.reporting import open_report
from evo.loop import evolve
from evo.preflight import refuse_pointless
from evo.result import first_environment, write_result
from evo.run_settings import fixed_settings, require_same_settings
from evo.search import prepare_search
from evo.signals import orderly_stop
from evo.steady import evolve_steadily
from evo.stop import StopSearch
from evo.suites import require_timed
from evo.table_device import as_measured
from evo.toolbox import build_bank
from evo.workbench import open_evaluator
from fitness.probe import Machine
from population.archive import Archive, create_archive, open_archive
from population.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: what it found, and the exit code that says so."""

    result: Mapping[str, Any]
    exit_code: int  # 0; 1 where nothing passed; 2 for a bad environment; 128 + signal where interrupted


def run_search(config: Config, machine: Machine, folder: RunFolder, console: Console) -> Outcome:
    """Search until a stop condition holds; go on with what the folder holds where it is a run already.

    Raises the errors of a bad environment or configuration before anything is measured.
    """
    require_timed(config)
    settled = settle(config, machine)
    config = replace(config, seeds=list(settled.seeds))
    refuse_pointless(config, settled, begun=folder.archive.exists())
    voice = RunConsole(console=console, budget=config.stop.evaluations)
    voice.head(settled.choices, str(folder.path))
    with ExitStack() as stack:
        stack.enter_context(orderly_stop())
        archive = stack.enter_context(open_archive(folder) if folder.archive.exists() else create_archive(folder))
        stop, result = _search(config, settled, machine, archive, folder, voice)
        write_result(folder, result)
        best = evaluation_of(archive, result["best"]["id"]) if result["best"] else None
    voice.farewell(result, best, str(folder.path), resumable=stop.exit_code is not None)
    found = 0 if result["best"] else 1
    return Outcome(result=result, exit_code=found if stop.exit_code is None else stop.exit_code)


def _search(
    config: Config, settled: Settled, machine: Machine, archive: Archive, folder: RunFolder, voice: RunConsole
) -> tuple[StopSearch, dict[str, Any]]:
    """Why it stopped, and the result."""
    settled = as_measured(config, settled, archive)
    require_same_settings(archive, fixed_settings(config, settled))
    search = prepare_search(config, settled, build_bank(config), archive, folder, voice.note)
    began = first_environment(archive)
    with (
        open_report(config, folder, archive, voice.note) as report,
        open_evaluator(config, settled, machine, began=began) as evaluator,
        voice.live(),
    ):
        toolbox = search.toolbox(evaluator, voice, report=report)
        state = search.state()
        before = amount_done(archive)
        if search.checkpoint:
            voice.note(f"resumed after generation {state.generation}, with {before[0]} evaluations made")
            for fault in archive.kernel_faults():
                voice.note(fault)
        if config.evolution.kind is EvolutionKind.steady:
            stop = evolve_steadily(state, toolbox, config.evolution.lambda_)
        else:
            stop = evolve(state, toolbox)
        stop = crown_best(toolbox.crown, stop)
        if search.checkpoint and stop.exit_code is None and amount_done(archive) == before:
            voice.note(nothing_left(stop.reason, config.stop, str(folder.path)))
    return stop, search.result(state, stop)
