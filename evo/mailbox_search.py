"""A search whose answers and measurements come as files: it goes on as far as they are there, and says what it needs.

The loop is the same, and so is its memory. The generation under way is made again from its checkpoint at each call, out
of what the archive holds; so every step may be repeated, and may be cut off anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deap import base

from evo.answerers.answerer import Reply, Request
from evo.answerers.mailbox import Inbox, Key, MailboxAnswerer, mail_name
from evo.choices import Settled
from evo.config import BackendKind, BaselineKind, Config, EvolutionKind
from evo.console import RunConsole
from evo.generation_gate import GenerationComplete, GenerationGate
from evo.history import Outcome
from evo.loggers.reporting import open_report
from evo.loop import State, evolve
from evo.measured import EvaluationsAwaited, MeasuredElsewhere, MeasuredFiles
from evo.mutation import ATTEMPTS, RepliesAwaited
from evo.pending import job_of, publish
from evo.remeasured import parents_to_measure, record_sittings, usable_sittings
from evo.result import first_environment, write_result
from evo.run_settings import fixed_settings, require_same_settings
from evo.search import Search, prepare_search
from evo.seeds import read_seeds
from evo.settings import ConfigError
from evo.stop import StopSearch
from evo.suites import to_suite
from fitness.evaluation import Environment
from fitness.faults import EnvironmentFault
from fitness.scenario import Suite
from population.archive import Archive
from population.atomic_file import parse_json, strict_json
from population.individual import Individual, individual_id, normalise
from population.records import EventRecord
from population.run_folder import RunFolder
from questions.bank import Bank

GIVEN_UP_EVENT = "given_up"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A question that waits for its answer: what to put to whom, and the file that holds it."""

    number: int
    attempt: int  # 1 for the one re-ask, which quotes why the first reply could not be read
    text: str
    path: Path
    unread: str  # of a re-ask: why the reply that came could not be read; else ""

    @property
    def key(self) -> Key:
        """What its reply is told under."""
        return (self.number, self.attempt)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What a run waits for. With neither prompts nor candidates, and not ended, it waits to be asked for questions."""

    run: RunFolder
    generation: int | None  # the last complete one; None before the seeds are measured
    prompts: tuple[Prompt, ...]
    candidates: tuple[str, ...]  # ids of what is to be measured, or can be while replies are out
    again: tuple[str, ...]  # ids of parents that are to be measured once more beside those
    ended: str  # why the search is over; "" while it is not
    model: str  # who answers where a reply does not say; "" where that is to be said with the replies
    run_model_code: bool  # whether whoever measures on the host must agree to that
    notes: tuple[str, ...]  # what was found and could not be used, or is worth knowing


@dataclass(frozen=True, kw_only=True)
class _Standstill:
    """How far a search came."""

    search: Search
    state: State
    stop: StopSearch
    gate: GenerationGate
    measured: MeasuredFiles


@dataclass(frozen=True, kw_only=True)
class MailboxSearch:
    """A run with its archive open. One call of `ask` or `tell` for each object."""

    config: Config
    bank: Bank
    folder: RunFolder
    archive: Archive
    console: RunConsole
    _notes: list[str] = field(default_factory=list, init=False)

    def ask(self, count: int | None) -> Waiting:
        """Begin the next generation with that many questions (None: lambda_), or put those under way once more."""
        if count is not None and self.config.single_shot.questions is not None:
            raise ConfigError(f"n={count}: a single shot puts all its questions at once; leave n out")
        standstill = self._go_on({}, wanted=count or self.config.evolution.lambda_)
        begun = standstill.gate.count
        if begun and count not in (None, begun) and standstill.gate.wanted is not None:
            self._notes.append(f"this generation was begun with n={begun}; n={count} would count for the next one")
        return self._publish(standstill)

    def tell(self, inbox: Inbox, *, partial: bool) -> Waiting:
        """Record the replies, and go on with the generation under way; with `partial` without those still missing."""
        standstill = self._go_on(inbox.replies, wanted=None)
        if partial and isinstance(standstill.stop, RepliesAwaited):
            self._give_up(standstill.stop.requests, inbox.unreadable)
            standstill = self._go_on(inbox.replies, wanted=None)
        self._notes.extend([*inbox.notes, *inbox.unreadable.values(), *self._remarks(inbox)])
        return self._publish(standstill)

    def is_new(self, key: Key) -> bool:
        """Whether a reply under that key answers a prompt, and neither was told before nor came too late."""
        late = self.archive.event(GIVEN_UP_EVENT, mail_name(*key)) is not None
        return not late and self.archive.prompt(*key) is not None and self.archive.reply(*key) is None

    def _go_on(self, replies: Mapping[Key, Reply], *, wanted: int | None) -> _Standstill:
        if self.config.evolution.kind is EvolutionKind.steady:
            raise ConfigError(f"{self.folder.path}: a steady search (evolution=steady) is not exchanged by files")
        measured = MeasuredFiles(folder=self.folder.measured, job=job_of(self.config, None), note=self._notes.append)
        environment = self._environment(measured)
        measured = replace(measured, job=job_of(self.config, environment))
        settled = settled_elsewhere(self.config, environment)
        if environment is not None:  # before that, nothing is measured that other settings could spoil
            require_same_settings(self.archive, fixed_settings(self.config, settled))
        search = prepare_search(self.config, settled, self.bank, self.archive, self.folder, self._notes.append)
        answerer = MailboxAnswerer(outbox=self.folder.outbox, replies=replies, given_up=self._given_up())
        with open_report(self.config, self.folder, self.archive, self._notes.append) as report:
            toolbox = search.toolbox(MeasuredElsewhere(measured), self.console, answerer, report)
            return self._evolve(search, toolbox, measured, wanted)

    def _evolve(
        self, search: Search, toolbox: base.Toolbox, measured: MeasuredFiles, wanted: int | None
    ) -> _Standstill:
        usual = self.config.evolution.lambda_
        gate = GenerationGate(archive=self.archive, check=toolbox.stop, usual=usual, wanted=wanted)
        select_parents = toolbox.select_parents
        toolbox.register("stop", gate.stop)
        toolbox.register("select_parents", lambda population: select_parents(population, count=gate.count))
        state = search.state()
        return _Standstill(search=search, state=state, stop=evolve(state, toolbox), gate=gate, measured=measured)

    def _environment(self, measured: MeasuredFiles) -> Environment | None:
        """Where the run's first candidate was measured; None where none is yet."""
        if (began := first_environment(self.archive)) is not None:
            return began
        for source in map(normalise, read_seeds(self.config.seeds or ())):
            if evaluation := measured.find(source):
                return evaluation.environment
        return None

    def _publish(self, standstill: _Standstill) -> Waiting:
        """Put into pending/ what is to be measured, write the result so far, and say what is waited for."""
        stop, history = standstill.stop, standstill.search.memory.history
        passed = parents_to_measure(self.config, history)
        self._record_sittings(standstill, passed)
        self._notes.extend(_lost_words(standstill))
        awaited = stop.sources if isinstance(stop, EvaluationsAwaited | RepliesAwaited) else ()
        sources = list(dict.fromkeys(map(normalise, awaited)))
        if isinstance(stop, RepliesAwaited):  # a child that is in the history was measured before
            sources = [source for source in sources if history.evaluation(individual_id(source)) is None]
        sources = [source for source in sources if standstill.measured.find(source) is None]
        has_children = bool(sources and standstill.state.population)  # before there is a population, seeds wait
        parents = passed if has_children else []
        job = replace(standstill.measured.job, again=tuple(parent.id for parent in parents))
        publish(self.folder.pending, job, [*sources, *(parent.source for parent in parents)])
        write_result(self.folder, standstill.search.result(standstill.state, stop))
        over = not isinstance(stop, EvaluationsAwaited | RepliesAwaited | GenerationComplete)
        return Waiting(
            run=self.folder,
            generation=standstill.state.generation if standstill.state.population else None,
            prompts=self._prompts(stop) if isinstance(stop, RepliesAwaited) else (),
            candidates=tuple(map(individual_id, sources)),
            again=job.again,
            ended=stop.reason if over else "",
            model=self.config.answerer.model or "",
            run_model_code=self.config.backend.run_model_code,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _record_sittings(self, standstill: _Standstill, parents: Sequence[Individual]) -> None:
        sittings = usable_sittings(standstill.measured, parents)
        if not isinstance(standstill.stop, EvaluationsAwaited | RepliesAwaited):  # each would be recorded as it grows
            record_sittings(self.archive, sittings, self._notes.append)

    def _prompts(self, awaited: RepliesAwaited) -> tuple[Prompt, ...]:
        return tuple(
            Prompt(
                number=request.number,
                attempt=request.attempt,
                text=request.prompt,
                path=self.folder.outbox / mail_name(request.number, request.attempt),
                unread=awaited.unread.get(request.number, ""),
            )
            for request in awaited.requests
        )

    def _given_up(self) -> dict[Key, str]:
        """Those that nobody will answer any more, and why a file that came was no reply; "" where none came."""
        records = (parse_json(event.record) for event in self.archive.events_of(GIVEN_UP_EVENT))
        return {(number, attempt): "".join(why) for number, attempt, *why in records}

    def _give_up(self, requests: Sequence[Request], unreadable: Mapping[Key, str]) -> None:
        with self.archive.transaction():
            for request in requests:
                key = (request.number, request.attempt)
                record = [*key, unreadable[key]] if key in unreadable else [*key]
                name = mail_name(*key)
                self.archive.record_event(EventRecord(kind=GIVEN_UP_EVENT, key=name, record=strict_json(record)))

    def _remarks(self, inbox: Inbox) -> list[str]:
        """One sentence for each reply that was not taken, and why."""
        given_up = self._given_up()
        remarks = []
        for key, reply in inbox.replies.items():
            recorded = self.archive.reply(*key)
            if key in given_up:
                remarks.append(f"reply {mail_name(*key)} came too late: the generation went on without it")
            elif recorded is None:
                remarks.append(f"reply {mail_name(*key)} is left alone: no prompt of that name has been put")
            elif recorded.text != reply.text:
                remarks.append(f"reply {mail_name(*key)} differs from the one that was told first, which counts")
        return remarks


def _lost_words(standstill: _Standstill) -> list[str]:
    """A sentence for each question of the generation under way of which neither reply could be read."""
    stop, lost = standstill.stop, {}
    if isinstance(stop, RepliesAwaited):
        lost = dict(stop.lost)
    elif isinstance(stop, EvaluationsAwaited):
        attempts = standstill.search.memory.history.attempts_of(standstill.state.generation + 1)
        lost = {each.number: each.detail for each in attempts if each.outcome is Outcome.UNREADABLE}
    return [
        f"the reply {mail_name(number, ATTEMPTS - 1)} came and cannot be read: {why}; it is not asked for again"
        for number, why in lost.items()
    ]


def settled_elsewhere(config: Config, environment: Environment | None) -> Settled:
    """The open points of the configuration as the first measurement settled them; nothing is measured before it.

    Raises EnvironmentFault for a baseline or backend that this version does not know, ConfigError for a bad suite.
    """
    suite = to_suite(config.suite)
    if environment is None:
        kinds = (config.backend.kind, config.baseline.kind)
        return _as_settled(config, suite, kinds, device="")
    try:
        backend, baseline = BackendKind(environment.backend), BaselineKind(environment.baseline)
    except ValueError as error:
        raise EnvironmentFault(f"the run was begun by another version of evo: {error}; use that one here") from error
    return _as_settled(config, suite, (backend, baseline), device=environment.device)


def _as_settled(config: Config, suite: Suite, kinds: tuple[BackendKind, BaselineKind], *, device: str) -> Settled:
    seeds = tuple(config.seeds or ())
    return Settled(backend=kinds[0], baseline=kinds[1], suite=suite, seeds=seeds, gpu=None, device=device, choices=())
