"""Measures what waits in a run's pending/ and writes measured/; needs neither the archive nor a network nor a key."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from evo.choices import Settled, settle
from evo.config import BackendKind, Config
from evo.judging import EvaluatesAll
from evo.measured import MeasuredFiles, write_measured
from evo.pending import JOB, REMEDY, Job, differences, pending_sources, read_job
from evo.settings import ConfigError, check_config, compose_config, parse_overrides
from evo.signals import orderly_stop
from evo.sittings import new_sitting
from evo.stop import Interrupted
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault
from fitness.probe import Machine
from population.run_folder import RunFolder

_OF_THIS_MACHINE: Mapping[str, str] = {"backend": "kind"} | {
    f"backend.{name}": name
    for name in (
        "kind",
        "device",
        "claim",
        "cache",
        "compile_processes",
        "compile_timeout_s",
        "run_model_code",
        "table",
    )
}

Workbench = Callable[[Config, Settled, Machine], AbstractContextManager[EvaluatesAll]]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one call has to do: the sources without an evaluation, by id, and what it found on the way."""

    folder: RunFolder
    job: Job
    config: Config
    sources: Mapping[str, str]
    measured_before: int  # evaluations that lie in measured/, of whatever generation
    notes: tuple[str, ...]  # a sentence for each file that could not be used
    again: Mapping[str, str] = field(default_factory=dict)  # the sources that are measured once more, before those

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be measured. Parents are for the sake of candidates."""
        return not self.sources


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What one call has measured, by id; `interruption` where a signal ended it before the rest."""

    evaluations: Mapping[str, Evaluation]
    again: Mapping[str, Evaluation] = field(default_factory=dict)
    interruption: Interrupted | None = None


def find_work(folder: RunFolder, words: Sequence[str]) -> Work:
    """What waits in the folder, with `words` for what may differ from machine to machine.

    Raises EnvironmentFault for a missing or bad job, ConfigError for other words.
    """
    job = read_job(folder.pending)
    config = _configuration(job, words)
    sources, notes = pending_sources(folder.pending)
    files = MeasuredFiles(folder=folder.measured, job=job, note=lambda _text: None)  # what cannot be used is made anew
    parents = {name: sources.pop(name) for name in job.again if name in sources}
    waiting = {name: source for name, source in sources.items() if files.find(source) is None}
    if waiting:
        absent = [path for name in job.again if not (path := folder.pending / f"{name}.cu").exists()]
        notes += [f"{path} is not there; {REMEDY}" for path in absent]
    elif parents and not sources:
        notes.append(f"{folder.pending} holds parents (again in {JOB}) and no candidate; {REMEDY}")
    return Work(
        folder=folder,
        job=job,
        config=config,
        sources=waiting,
        measured_before=sum(path.stem not in waiting for path in folder.measured.glob("*.json")),
        notes=tuple(notes),
        again=parents if waiting else {},
    )


def settle_here(work: Work, machine: Machine) -> Settled:
    """How it is measured on this machine. Raises EnvironmentFault where that differs from how the run began,
    ConfigError where a model's code would run natively without this user's word.
    """
    settled = settle(work.config, machine)
    _require_same_place(work.job, settled)
    _require_consent(work, settled)
    return settled


def measure(
    work: Work,
    settled: Settled,
    machine: Machine,
    open_workbench: Workbench,
    on_done: Callable[[str, Evaluation], None],
    on_again: Callable[[str, Evaluation], None] = lambda _name, _evaluation: None,
) -> Measurements:
    """Measure it; each evaluation is in its file before `on_done(id, evaluation)` hears of it. `on_again` hears of the
    parents, which come first: where a sitting is cut off, what it has measured has them beside it.

    Raises EnvironmentFault where the first evaluation shows that the run began elsewhere; nothing is kept then.
    """
    evaluations: dict[str, Evaluation] = {}
    again: dict[str, Evaluation] = {}
    sitting = new_sitting(work.folder.measured)

    def keep_parent(name: str, source: str, evaluation: Evaluation) -> None:
        _require_of_job(work.job, source, evaluation)
        sitting.add_parent(name, evaluation)
        again[name] = evaluation
        on_again(name, evaluation)

    def keep(name: str, source: str, evaluation: Evaluation) -> None:
        _require_of_job(work.job, source, evaluation)
        sitting.add_child(name, evaluation)
        write_measured(work.folder.measured, source, evaluation)
        evaluations[name] = evaluation
        on_done(name, evaluation)

    try:
        with orderly_stop(), open_workbench(work.config, settled, machine) as evaluator:
            _measure(work.again, evaluator, keep_parent)
            _measure(work.sources, evaluator, keep)
    except Interrupted as interruption:
        return Measurements(evaluations=evaluations, again=again, interruption=interruption)
    return Measurements(evaluations=evaluations, again=again)


def _measure(
    sources: Mapping[str, str], evaluator: EvaluatesAll, keep: Callable[[str, str, Evaluation], None]
) -> None:  # fmt: skip
    items = list(sources.items())
    if items:
        evaluator.evaluate_all(
            [source for _, source in items], on_done=lambda place, evaluation: keep(*items[place], evaluation)
        )


def _require_of_job(job: Job, source: str, evaluation: Evaluation) -> None:
    if refusal := job.refusal(source, evaluation):
        raise EnvironmentFault(f"nothing is kept: {refusal}; measure where the run began, or begin another run")


def _configuration(job: Job, words: Sequence[str]) -> Config:
    """The job's, but for what the words set of this machine, and leave to run a model's code natively."""
    named = [str(override.key_or_group) for override in parse_overrides(words)]
    for key in named:
        if key not in _OF_THIS_MACHINE and key.split(".")[0] != "pool":
            allowed = ", ".join((*_OF_THIS_MACHINE, "pool"))
            raise ConfigError(f"{key}: the run decides how it is measured; only these can be set here: {allowed}")
    given = compose_config(words)
    keys = [_OF_THIS_MACHINE[key] for key in (*named, "backend.run_model_code") if key in _OF_THIS_MACHINE]
    own = {key: getattr(given.backend, key) for key in keys}
    config = replace(
        given, backend=replace(job.backend, **own), baseline=job.baseline, suite=job.suite, judge=job.judge
    )
    check_config(config)
    return config


def _require_same_place(job: Job, settled: Settled) -> None:
    if job.environment is None or settled.backend is BackendKind.recorded:
        return
    here = replace(
        job.environment,
        backend=settled.backend.value,
        device=settled.device,
        baseline=settled.baseline.value,
    )
    if differing := differences(job.environment, here):
        raise EnvironmentFault(f"the run began elsewhere: {', '.join(differing)}; measure there, or begin another run")


def _require_consent(work: Work, settled: Settled) -> None:
    """A job may come from anywhere: its word is not enough to run what a model wrote with this user's rights."""
    asked = work.job.backend.run_model_code and settled.backend is BackendKind.host
    if asked and not work.config.backend.run_model_code:
        raise ConfigError(
            "this run asks to run a model's code natively here, with your rights; to allow that, add "
            "backend.run_model_code=true"
        )
