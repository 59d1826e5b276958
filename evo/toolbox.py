"""Builds a search from its configuration: each step of the loop, with all that it works with."""

import functools
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deap import base

from evo.added_kernels import AddedKernels
from evo.added_questions import AddedQuestions
from evo.answerers.answerer import Answerer, Reply
from evo.answerers.budget import Budget, Price
from evo.answerers.mailbox import MailboxAnswerer, read_inbox
from evo.answerers.offline import OfflineAnswerer
from evo.answerers.replay import ReplayAnswerer
from evo.asking import Asker, Phrasing
from evo.auditors import build_auditing
from evo.choices import Settled
from evo.config import AnswererKind, Config, EvolutionKind, SelectionKind
from evo.console import RunConsole
from evo.history import History
from evo.judging import EvaluatesAll, Judging, race_with
from evo.keeping import Keeper
from evo.loggers.reporting import NO_REPORT, Report
from evo.loop import State
from evo.mutation import Mutation
from evo.prompt import PromptTemplate, ToolsPart, load_template
from evo.reply_records import to_reply
from evo.seeds import sown
from evo.selection import Lexicase, Selection, Tournament
from evo.settings import ConfigError
from evo.silence import require_answers
from evo.single_shot import single_shot
from evo.stop import StopSearch, check
from evo.tools.bench import Bench
from evo.tracking import Tracker
from evo.under_way import UnderWay, register_steady, wanted
from evo.workbench import build_bench
from fitness.evaluation import Evaluation
from population.archive import Archive
from population.archive_reader import read_archive
from population.individual import Individual
from population.run_folder import RunFolder, open_run_folder
from questions.bank import Bank, load_bank, shipped_bank_path
from questions.question import Style
from questions.sampler import QuestionSampler, SamplingMode
from questions.triggers import Thresholds


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a run remembers, and its generators."""

    archive: Archive
    history: History
    sampler: QuestionSampler
    search_rng: random.Random
    tracker: Tracker


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of the loop that are more than one call of a collaborator."""

    config: Config
    memory: Memory
    selection: Selection
    judging: Judging
    console: RunConsole
    begun_after: int  # the generation that this part of the run began after

    def stop(self, state: State) -> None:
        """Raise StopSearch where a condition holds, or where a model's server does not answer any more."""
        check(self.memory.tracker.standing(state), self.config.stop)
        if self.config.answerer.kind is AnswererKind.openai:
            require_answers(self.memory.history, state.generation, begun_after=self.begun_after)

    def sow(self) -> list[Individual]:
        """The judged seed kernels. Raises StopSearch where none of them passes, ConfigError as `sown`."""
        seeds = sown(self.config.seeds or (), self.memory.archive)
        for seed in seeds:
            self.memory.archive.record_individual(seed)
            self.memory.history.add_individual(seed)
        self.judging.evaluate(seeds)
        if not any(seed.fitness.values[0] > 0.0 for seed in seeds):
            evaluation = self.memory.history.evaluation(seeds[0].id)
            why = f"{evaluation.status}: {evaluation.reason}" if evaluation else "not judged"
            raise StopSearch(f"no seed passed, so there is nothing to ask about ({why})")
        return seeds

    def select_parents(
        self, population: Sequence[Individual], count: int | None = None
    ) -> list[tuple[Individual, ...]]:
        """As many groups of one or two parents as children are wanted: `count`, or lambda_ as configured."""
        groups: list[tuple[Individual, ...]] = []
        for first in self.selection.parents(population, count or self.config.evolution.lambda_):
            others = [individual for individual in population if individual.id != first.id]
            crossed = self.memory.search_rng.random() < self.config.evolution.crossover_probability
            groups.append((first, self.selection.parents(others, 1)[0]) if crossed and others else (first,))
        return groups

    def select_survivors(self, pool: Sequence[Individual]) -> list[Individual]:
        """The next population."""
        return self.selection.survivors(pool, self.config.evolution.mu)

    def next_birth(self, state: State) -> int:
        """The number after the last question of the generation that has just been judged."""
        return max(attempt.number for attempt in self.memory.history.attempts_of(state.generation)) + 1

    def record(self, state: State, newcomers: Sequence[Individual]) -> None:
        """Credit the generation's questions and add its figures to the logbook; only what passed has a speed."""
        attempts = self.memory.history.attempts_of(state.generation)
        self.judging.credit(attempts)
        for attempt in attempts:
            self.console.childless(attempt)
        speeds = [individual.fitness.values[0] for individual in state.population]
        state.logbook.record(
            generation=state.generation,
            asked=len(attempts),
            new=len(newcomers),
            passed=sum(1 for individual in newcomers if individual.fitness.values[0] > 0.0),
            best=max(speeds),
            mean=sum(speeds) / len(speeds),
        )
        self.console.generation(state.generation, self.memory.tracker)


def build_toolbox(
    config: Config, settled: Settled, memory: Memory, evaluator: EvaluatesAll, keeper: Keeper, console: RunConsole,
    note: Callable[[str], None], answerer: Answerer | None = None, report: Report = NO_REPORT, begun_after: int = 0,
) -> base.Toolbox:  # fmt: skip
    """The loop's steps by name; without an `answerer` the configured one. Raises ConfigError or AnswererError."""
    auditing = build_auditing(config, settled, evaluator, memory.archive, memory.history, console.note)
    judging = Judging(
        evaluator=evaluator, archive=memory.archive, history=memory.history, sampler=memory.sampler,
        budget=config.stop.evaluations, on_judged=_telling(memory, console, report), auditing=auditing,
        race=race_with(evaluator, place=config.evolution.mu) if config.judge.race else None,
    )  # fmt: skip
    bench = build_bench(config, settled, evaluator) if config.answerer.tools else None
    spent_usd = memory.archive.spend_so_far()["cost_usd"]
    asker = functools.partial(_build_asker, config, settled, memory, bench)
    shot = single_shot(config, memory.sampler, memory.history, asker, lambda: named_rng(config.rng_seed, "single shot"))
    added = AddedQuestions(folder=keeper.run.questions, archive=memory.archive, sampler=memory.sampler)
    own_asker = asker(Style(config.style.kind.value))
    answerer = answerer or build_answerer(config, keeper.run, spent_usd=spent_usd, bench=bench)
    mutation = Mutation(
        asker=shot or own_asker, answerer=answerer, archive=memory.archive, history=memory.history,
        concurrency=config.answerer.concurrency,
        take_in=(lambda _number: None) if shot else added.take_in,  # a shot's questions are fixed beforehand
    )  # fmt: skip
    steps = Steps(
        config=config, memory=memory, selection=_selection(config, memory.history), judging=judging, console=console,
        begun_after=begun_after,
    )  # fmt: skip
    toolbox = base.Toolbox()
    for step in ("stop", "sow", "next_birth", "select_survivors", "record"):
        toolbox.register(step, getattr(steps, step))
    toolbox.register("select_parents", (shot or steps).select_parents)
    by_hand = AddedKernels(folder=keeper.run.added, archive=memory.archive, history=memory.history, note=note)
    toolbox.register("vary", mutation.vary if shot else by_hand.beside(mutation.vary))
    toolbox.register("evaluate", judging.evaluate)
    toolbox.register("checkpoint", keeper.save)
    if config.evolution.kind is EvolutionKind.steady:
        under_way = UnderWay(
            mutation=mutation, asker=own_asker, answerer=answerer, judging=judging, archive=memory.archive,
            history=memory.history, sampler=memory.sampler, keeper=keeper, take_in=added.take_in,
            wanted=wanted(config, evaluator), tracker=memory.tracker,
        )  # fmt: skip
        register_steady(toolbox, under_way)
    toolbox.register("crown", auditing.crown)
    return toolbox


def _telling(memory: Memory, console: RunConsole, report: Report) -> Callable[[Individual, Evaluation], None]:
    """Counts each evaluation, and tells a person and a logger of it, unless an earlier part of the run did."""
    told = {score.individual_id for score in memory.archive.scores()}

    def on_judged(individual: Individual, evaluation: Evaluation) -> None:
        memory.tracker.judged(evaluation)
        if individual.id not in told:
            asked = memory.history.attempt_of(individual.id)
            gain = memory.history.gain(asked) if asked else None
            console.judged(individual.id, evaluation, memory.tracker, asked, gain, operator=individual.operator)
        report.judged(evaluation, memory.history, memory.tracker)

    return on_judged


def _build_asker(config: Config, settled: Settled, memory: Memory, bench: Bench | None, style: Style) -> Asker:
    phrasing = Phrasing(
        style=style,
        template=read_template(config.style.template),
        budget_tokens=config.style.budget_tokens,
        device=settled.device,
        baseline=settled.baseline.value,
        tools=_tools_part(bench) if bench else None,
    )
    thresholds = Thresholds(
        patience=config.questions.stall_after,
        min_change=config.questions.noise,
        big_win=config.questions.big_win,
    )
    return Asker(sampler=memory.sampler, phrasing=phrasing, history=memory.history, thresholds=thresholds)


def build_bank(config: Config) -> Bank:
    """The shipped questions and the user's own. Raises BankError."""
    return load_bank([shipped_bank_path(), *(Path(name) for name in config.questions.files)])


def build_sampler(config: Config, bank: Bank) -> QuestionSampler:
    """The sampler with a generator of its own, seeded from rng_seed."""
    return QuestionSampler(
        bank,
        named_rng(config.rng_seed, "questions"),
        styles=tuple(Style) if config.questions.all_styles else (Style(config.style.kind.value),),
        mode=SamplingMode(config.questions.sampling.value),
    )


def named_rng(rng_seed: int, name: str) -> random.Random:
    """A generator of its own for each purpose, all from one number, so that none disturbs another."""
    return random.Random(f"{rng_seed}:{name}")  # noqa: S311  # a search's choices are no secret


def build_answerer(config: Config, run: RunFolder, *, spent_usd: float, bench: Bench | None = None) -> Answerer:
    """The configured answerer of a run. Raises ConfigError, AnswererError, RunFolderError where it cannot be asked."""
    answerer = config.answerer
    if answerer.kind is AnswererKind.offline:
        return OfflineAnswerer(rng_seed=config.rng_seed)
    if answerer.kind is AnswererKind.replay:
        return ReplayAnswerer(_recorded_replies(Path(answerer.replay_from or "")), origin=str(answerer.replay_from))
    if answerer.kind is AnswererKind.mailbox:
        if not answerer.model:
            raise ConfigError("answerer.model is not set: say who answers, as in answerer.model=some-model")
        inbox = read_inbox(run.inbox, model=answerer.model, used_tools=False)
        return MailboxAnswerer(outbox=run.outbox, replies=inbox.replies)
    from evo.answerers.openai import OpenAIAnswerer, OpenAISettings  # the openai package takes a second to import
    from evo.answerers.wire import Api

    settings = OpenAISettings(
        model=answerer.model or "",
        base_url=answerer.base_url,
        api_key_env=answerer.api_key_env,
        api=Api(answerer.api.value),
        max_tokens=answerer.max_tokens,
        temperature=answerer.temperature,
        rng_seed=config.rng_seed,
        timeout_s=answerer.timeout_s,
        max_retries=answerer.max_retries,
        price=Price(
            prompt_usd=answerer.usd_per_million_prompt_tokens,
            completion_usd=answerer.usd_per_million_completion_tokens,
        ),
    )
    budget = Budget(limit_usd=config.stop.spend_usd, spent_usd=spent_usd)
    return OpenAIAnswerer(settings, environment=os.environ, budget=budget, bench=bench)


def _tools_part(bench: Bench) -> ToolsPart:
    return ToolsPart(tools=tuple((tool.name, tool.description) for tool in bench.tools), calls=bench.limit)


def read_template(name: str | None) -> PromptTemplate:
    """The prompt template at a path, or the shipped one. Raises ConfigError or PromptError."""
    try:
        return load_template(Path(name) if name else None)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"style.template: {name!r} cannot be read ({error}); expected a prompt template") from error


def _selection(config: Config, history: History) -> Selection:
    if config.selection.kind is SelectionKind.lexicase:
        return Lexicase(speedups=history.speedups, elites=config.evolution.elites)
    return Tournament(size=config.selection.tournament_size)


def _recorded_replies(folder: Path) -> Callable[[int, int], Reply | None]:
    with read_archive(open_run_folder(folder)) as archive:
        replies = {(record.number, record.attempt): to_reply(record) for record in archive.replies()}
    return lambda number, attempt: replies.get((number, attempt))
