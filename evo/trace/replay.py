"""A search made again from its trace: the loop is the same, and what came from outside comes from the trace."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deap import base
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evo.answerers.answerer import AnswererError, Reply, Request
from evo.answerers.mailbox import ReplyAwaited, mail_name
from evo.answerers.replay import ReplayAnswerer
from evo.audits import CHAMPION_EVENT
from evo.choices import Settled
from evo.config import BackendKind, BaselineKind, Config, EvolutionKind
from evo.console import RunConsole
from evo.generation_gate import questions_begun_with
from evo.loop import State, evolve
from evo.replay_mark import mark_replay
from evo.result import write_result
from evo.run_settings import fixed_settings, require_same_settings
from evo.search import Search, prepare_search
from evo.settings import ConfigError, to_config
from evo.stop import StopSearch
from evo.trace.trace import Trace
from evo.trace.trace_file import TraceError
from fitness.evaluation import Evaluation
from fitness.evaluation_key import source_sha256
from fitness.scenario import Scenario, Suite
from population.archive import Archive, create_archive
from population.atomic_file import strict_json, write_atomically
from population.checkpoint import load_newest
from population.individual import Individual, individual_id
from population.kernel_files import KernelFiles
from population.run_folder import RunFolder, create_run_folder

TEMPLATE = "template.md"  # in the folder of the replay, where the run had one of its own
_REMEDY = "replay it by the evo that made the run"
_THE_END = "the trace ends here"
_AUDIT = frozenset({"audit", "audit_made", "audit_left_out"})  # of the best in a result
_SETTLED = ("backend", "device", "baseline", "suite", "suite.scenarios")  # of the settings: no options, but outcomes


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay came to, and what of it is not as the trace has it; `compared` names all that was looked at."""

    folder: RunFolder
    result: Mapping[str, Any]
    compared: tuple[str, ...]
    differing: tuple[str, ...]


def replay(trace: Trace, runs: Path, name: str, console: RunConsole) -> Replayed:
    """Search again in a new folder below `runs`, as far as the trace goes.

    The costs and the calls of tools are copied: a replay has none of its own. Raises TraceError for settings that this
    version cannot use and for seeds that were not measured, before there is a folder, and RunFault.
    """
    config, settled = _configuration(trace.settings), _settled(trace.settings)
    if config.evolution.kind is EvolutionKind.steady:
        raise TraceError("a steady search depends on when each candidate was done, which no trace holds: not replayed")
    _require_a_measured_seed(trace)
    folder = create_run_folder(runs, name)
    config = _with_files_of(trace, config, folder)
    with create_archive(folder) as archive:
        require_same_settings(archive, fixed_settings(config, settled))
        mark_replay(archive, trace.run)
        _copy(trace, archive)
        search = prepare_search(config, settled, trace.bank, archive, folder, console.note)
        toolbox = search.toolbox(TraceEvaluator(trace), console, TraceAnswerer(trace))
        state = search.state()
        _follow(trace, toolbox, archive)
        stop = evolve(state, toolbox)
        _copy_crowning(trace, archive)
        result = _result(trace, search, state, stop)
        write_result(folder, result)
    return _compared(trace, folder, result)


class TraceAnswerer:
    """Answers as the trace has it, the requests that failed included; beyond its end every reply is awaited."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._recorded = ReplayAnswerer(lambda *key: trace.replies.get(key), origin=f"the trace of {trace.run}")

    @property
    def description(self) -> str:
        """Where the replies come from."""
        return self._recorded.description

    def answer(self, request: Request) -> Reply:
        """The recorded reply. Raises AnswererError where the request failed, ReplyAwaited where the trace ends."""
        if (request.number, request.attempt) in self._trace.replies:
            return self._recorded.answer(request)
        why = self._trace.unanswered(request.number)
        if why is None:
            raise ReplyAwaited(request, Path(mail_name(request.number, request.attempt)))
        message, _, hint = why.removesuffix(")").rpartition(" (")  # the error puts them together again, to the letter
        raise AnswererError(message, hint=hint, retryable=True)


class TraceEvaluator:
    """Evaluates as a device does, by the trace's records and in their order; the search ends where one is missing.

    They may be of several compilers or drivers, as a run may be gone on with after an upgrade.
    """

    def __init__(self, trace: Trace) -> None:
        self._recorded = trace.evaluations

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """One evaluation a source, in the sources' order. Raises StopSearch after those that there are."""
        found = [self._recorded.get(source_sha256(source)) for source in sources]
        known = [(each[0], place, each[1]) for place, each in enumerate(found) if each is not None]
        for _, place, evaluation in sorted(known, key=lambda each: each[0]):
            if on_done is not None:
                on_done(place, evaluation)
        if len(known) < len(sources):
            raise StopSearch(_THE_END)
        return [evaluation for _, _, evaluation in known]


def _follow(trace: Trace, toolbox: base.Toolbox, archive: Archive) -> None:
    """Have the loop make the trace's generations: as many, of as many questions, under the same numbers."""
    select_parents, vary = toolbox.select_parents, toolbox.vary

    def stop(state: State) -> None:
        if state.generation >= trace.generations and trace.last_question < state.next_birth:
            raise StopSearch(_THE_END)
        count = questions_begun_with(archive, state.generation + 1)  # where they were asked for by number
        toolbox.register("select_parents", lambda population: select_parents(population, count=count))

    def vary_under(parents: Sequence[tuple[Individual, ...]], *, first_birth: int, generation: int) -> list[Individual]:
        last = trace.last_number(generation)
        first = first_birth if last is None else last - len(parents) + 1
        children: list[Individual] = vary(parents, first_birth=first, generation=generation)
        if last is None:  # the run was cut off in this generation, perhaps after its last evaluation
            toolbox.evaluate(children)
            raise StopSearch(_THE_END)
        return children

    toolbox.register("stop", stop)
    toolbox.register("vary", vary_under)


def _require_a_measured_seed(trace: Trace) -> None:
    if not any(source_sha256(seed) in trace.evaluations for seed in trace.seeds):
        names = ", ".join(map(individual_id, trace.seeds))
        raise TraceError(f"the trace lacks the evaluation of its seed {names}; export the run once that is measured")


def _configuration(settings: Mapping[str, Any]) -> Config:
    """The run's own, as far as its settings say."""
    options = {key: value for key, value in settings.items() if key not in _SETTLED}
    if "${" in strict_json(options):  # no file may read this machine's variables
        raise TraceError("the trace's settings refer to variables; expected plain values")
    node = OmegaConf.structured(Config)
    try:
        for key, value in options.items():
            OmegaConf.update(node, key, value)
        return to_config(node)
    except (OmegaConfBaseException, ConfigError, TypeError, ValueError) as error:
        raise TraceError(f"the trace's settings cannot be used ({error}); {_REMEDY}") from error


def _with_files_of(trace: Trace, config: Config, folder: RunFolder) -> Config:
    """The configuration with the trace's seeds and template, which now lie in the folder."""
    kernels = KernelFiles(folder.kernels)
    names = [individual_id(source) for source in trace.seeds]
    for name, source in zip(names, trace.seeds, strict=True):
        kernels.write(name, source)
    template = folder.path / TEMPLATE
    if trace.template is not None:
        write_atomically(template, f"{trace.template}\n")
    return replace(
        config,
        answerer=replace(config.answerer, concurrency=1),  # nothing is waited for
        seeds=[str(folder.kernels / f"{name}.cu") for name in names],
        style=replace(config.style, template=str(template) if trace.template is not None else None),
        questions=replace(config.questions, files=[]),
    )


def _settled(settings: Mapping[str, Any]) -> Settled:
    try:
        scenarios = tuple(Scenario.from_json(each) for each in settings["suite.scenarios"])
        return Settled(
            backend=BackendKind(settings["backend"]),
            baseline=BaselineKind(settings["baseline"]),
            suite=Suite(name=settings["suite"], scenarios=scenarios),
            seeds=(),
            gpu=None,
            device=settings["device"],
            choices=(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"the trace's settings cannot be used ({error!r}); {_REMEDY}") from error


def _copy(trace: Trace, archive: Archive) -> None:
    with archive.transaction():
        for event in trace.events:
            if event.kind != CHAMPION_EVENT:
                archive.record_event(event)
        for _, spend in sorted(trace.spend.items()):
            archive.record_spend(spend)


def _copy_crowning(trace: Trace, archive: Archive) -> None:
    """The audits of the run's best, which came after its search."""
    with archive.transaction():
        for event in trace.events:
            if event.kind == CHAMPION_EVENT:
                archive.record_event(event)


def _result(trace: Trace, search: Search, state: State, stop: StopSearch) -> dict[str, Any]:
    """The replay's result; why the search ended is the trace's to say, for its limits were not the trace's end."""
    return search.result(state, StopSearch(trace.result["stop_reason"]) if trace.result else stop)


def _compared(trace: Trace, folder: RunFolder, result: Mapping[str, Any]) -> Replayed:
    """Population and hall of fame, where both checkpoints are of one generation, and each field of the result."""
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    loaded = load_newest(folder.checkpoints)
    if trace.checkpoint is not None and loaded and loaded.checkpoint.generation == trace.checkpoint["generation"]:
        for name in ("population", "hall_of_fame"):
            theirs[name] = trace.checkpoint[name]
            ours[name] = [vars(member) for member in getattr(loaded.checkpoint, name)]
    for name, value in (trace.result or {}).items():
        theirs[name], ours[name] = value, result.get(name)
    differing = tuple(name for name, value in theirs.items() if not _alike(name, ours[name], value))
    return Replayed(folder=folder, result=result, compared=tuple(theirs), differing=differing)


def _alike(name: str, ours: object, theirs: object) -> bool:
    """Whether two fields are equal: sums of costs but for the order in which they were added up, the best but for what
    is said of its audit, which is copied, and which each version puts into words of its own.
    """
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours == theirs
    if name == "best":
        ours, theirs = ({key: best[key] for key in best.keys() - _AUDIT} for best in (ours, theirs))
    if name != "spend":
        return bool(ours == theirs)
    same_kinds = ours.keys() == theirs.keys()
    return same_kinds and all(math.isclose(ours[kind], theirs[kind], rel_tol=1e-9) for kind in ours)
