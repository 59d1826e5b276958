"""One run, from its configuration to its result.json: `evo evolve` makes one, a sweep makes many."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from evo.choices import Settled, settle
from evo.config import Config
from evo.console import RunConsole
from evo.history import History
from evo.keeping import Keeper, newest_checkpoint
from evo.loop import evolve
from evo.result import build_result, evaluation_of, write_result
from evo.run_settings import fingerprint, fixed_settings, require_same_settings
from evo.signals import orderly_stop
from evo.stop import Interrupted, StopSearch
from evo.toolbox import Memory, build_bank, build_sampler, build_toolbox, named_rng
from evo.tracking import Tracker
from evo.workbench import open_evaluator
from fitness.probe import Machine
from population.archive import Archive, create_archive, open_archive
from population.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: what it found, and the exit code that says so."""

    result: Mapping[str, Any]
    exit_code: int  # 0; 1 where nothing passed; 128 + signal where it was interrupted


def run_search(config: Config, machine: Machine, folder: RunFolder, console: Console) -> Outcome:
    """Search until a stop condition holds; go on with what the folder holds where it is a run already.

    Raises the errors of a bad environment or configuration before anything is measured.
    """
    settled = settle(config, machine)
    voice = RunConsole(console=console, budget=config.stop.evaluations)
    voice.head(settled.choices, str(folder.path))
    with ExitStack() as stack:
        archive = stack.enter_context(open_archive(folder) if folder.archive.exists() else create_archive(folder))
        stop, generations = _search(config, settled, machine, archive, folder, voice)
        summary = {
            "suite": settled.suite.name,
            "style": config.style.kind.value,
            "answerer": config.answerer.kind.value,
            "model": config.answerer.model,
            "selection": config.selection.kind.value,
            "rng_seed": config.rng_seed,
        }
        result = build_result(archive, settings=summary, generations=generations, stop_reason=stop.reason)
        write_result(folder, result)
        best = evaluation_of(archive, result["best"]["id"]) if result["best"] else None
    voice.farewell(result, best, str(folder.path), resumable=isinstance(stop, Interrupted))
    if isinstance(stop, Interrupted):
        return Outcome(result=result, exit_code=stop.exit_code)
    return Outcome(result=result, exit_code=0 if result["best"] else 1)


def _search(
    config: Config, settled: Settled, machine: Machine, archive: Archive, folder: RunFolder, voice: RunConsole
) -> tuple[StopSearch, int]:
    settings = fixed_settings(config, settled)
    require_same_settings(archive, settings)
    checkpoint = newest_checkpoint(folder, fingerprint(settings), voice.note)
    bank = build_bank(config)
    memory = Memory(
        archive=archive,
        history=History(),
        sampler=build_sampler(config, bank),
        search_rng=named_rng(config.rng_seed, "search"),
        tracker=Tracker(archive=archive, earlier_s=checkpoint.counters["elapsed_ms"] / 1000 if checkpoint else 0.0),
    )
    keeper = Keeper(
        run=folder,
        archive=archive,
        history=memory.history,
        sampler=memory.sampler,
        search_rng=memory.search_rng,
        keep=config.evolution.keep_checkpoints,
        hall_of_fame_size=config.evolution.hall_of_fame,
        settings_fingerprint=fingerprint(settings),
        elapsed_s=memory.tracker.elapsed_s,
    )
    with open_evaluator(config, settled, machine) as evaluator, orderly_stop(), voice.live():
        toolbox = build_toolbox(config, settled, memory, evaluator, keeper, voice)
        state = keeper.restore(checkpoint, bank) if checkpoint else keeper.fresh(config.rng_seed)
        if checkpoint:
            made = memory.tracker.evaluations
            voice.note(f"resumed after generation {state.generation}, with {made} evaluations made")
            for fault in archive.kernel_faults():
                voice.note(fault)
        return evolve(state, toolbox), state.generation
