"""A whole search in little: a kernel of four knobs, a judge that is a pure function of them, the offline answerer."""

import io
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deap import base
from rich.console import Console
from small_records import failed, passed

from evo.answerers.answerer import Answerer
from evo.asking import Phrasing
from evo.attempt_events import recorded_attempts
from evo.choices import Settled, settle
from evo.config import (
    BackendConfig,
    BackendKind,
    Config,
    EvolutionConfig,
    ScenarioConfig,
    SelectionConfig,
    SelectionKind,
    StopConfig,
    SuiteConfig,
)
from evo.console import RunConsole
from evo.history import History
from evo.judging import EvaluatesAll
from evo.keeping import Keeper, newest_checkpoint
from evo.loop import State, evolve
from evo.prompt import load_template
from evo.result import build_result
from evo.run_settings import fingerprint, fixed_settings, require_same_settings
from evo.search import Search
from evo.stop import StopSearch
from evo.toolbox import Memory, build_sampler, named_rng
from evo.tracking import Tracker
from fitness.backends.recorded import RecordedEvaluator, export_table
from fitness.evaluation import Evaluation, Status
from fitness.manifest import read_manifest, with_knobs
from fitness.probe import Machine
from population.archive import Archive, create_archive, open_archive
from population.archive_reader import read_archive
from population.atomic_file import parse_json
from population.checkpoint import load_newest
from population.run_folder import RunFolder
from questions.bank import Bank, load_bank
from questions.question import Style

DATA = Path(__file__).parent / "data"
SEED = DATA / "knobs.cu"
SOURCE = SEED.read_text(encoding="utf-8")
PHRASING = Phrasing(
    style=Style.QUESTION, template=load_template(), budget_tokens=60000, device="test device", baseline="sdpa"
)
MACHINE = Machine(processor="test device", gpus=(), driver="", gxx="", nvrtc="", packages={})
SCENARIOS = ("b1 h2 s64 d64 causal bf16", "b1 h2 s128 d64 full bf16")


def small_config(
    *,
    generations: int | None = 4,
    evaluations: int | None = None,
    selection: SelectionKind = SelectionKind.tournament,
    mu: int = 3,
    lambda_: int = 4,
    **stop: Any,
) -> Config:
    """Two scenarios, and limits that a test sets. Crossover is frequent, so that it happens."""
    return Config(
        seeds=[str(SEED)],
        backend=BackendConfig(kind=BackendKind.recorded, table="a test's own judge"),
        suite=SuiteConfig(
            name="tiny",
            edges=False,
            scenarios=[
                ScenarioConfig(batch=1, heads=2, seqlen_q=64, head_dim=64, causal=True),
                ScenarioConfig(batch=1, heads=2, seqlen_q=128, head_dim=64, causal=False),
            ],
        ),
        evolution=EvolutionConfig(mu=mu, lambda_=lambda_, crossover_probability=0.3, hall_of_fame=4),
        selection=SelectionConfig(kind=selection, tournament_size=2),
        stop=StopConfig(generations=generations, evaluations=evaluations, **stop),
    )


def judge_knobs(source: str, suite: str = "tiny") -> Evaluation:
    """What the knobs of `data/knobs.cu` are worth. Many of them are worth the same, and some combinations fail."""
    knobs = {knob.name: knob.value for knob in read_manifest(source).knobs}
    if knobs["STAGES"] == 4 and knobs["BLOCK_M"] == 128:
        return failed(source, Status.COMPILE_ERROR, "candidate.cu(7): error: too much shared memory", suite=suite)
    if knobs["UNROLL"] == 8 and knobs["WIDTH"] == 4:
        return failed(source, Status.INCORRECT, "o differs from the reference by 0.5, not 0.01 at most", suite=suite)
    rows = math.log2(knobs["BLOCK_M"]) / 10
    causal = 0.5 + 0.2 * min(knobs["STAGES"], 2) + rows
    full = 0.4 + 0.2 * knobs["WIDTH"] - rows / 2
    return passed(source, dict(zip(SCENARIOS, (causal, full), strict=True)), suite=suite)


def write_table(path: Path, suite: str = "tiny") -> Path:
    """The verdicts on every kernel that the knobs can make, as the recorded backend reads them."""
    export_table([judge_knobs(kernel, suite) for kernel in every_kernel()], path)
    return path


def every_kernel() -> list[str]:
    """All that the knobs can make."""
    knobs = read_manifest(SOURCE).knobs
    return [
        with_knobs(SOURCE, dict(zip((knob.name for knob in knobs), values, strict=True)))
        for values in itertools.product(*(knob.choices for knob in knobs))
    ]


@cache
def recorded_table() -> RecordedEvaluator:
    """The verdicts on every kernel as the recorded backend serves them."""
    return RecordedEvaluator([judge_knobs(kernel) for kernel in every_kernel()])


class KnobJudge:
    """EvaluatesAll, from the recorded table, or by its rule for a kernel of a test's own; `judged` holds what came."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        evaluations = []
        for place, source in enumerate(sources):
            found = recorded_table().evaluate(source)
            evaluations.append(judge_knobs(source) if found.status is Status.UNSUPPORTED else found)
            self.judged.append(source)
            if on_done is not None:
                on_done(place, evaluations[-1])
        return evaluations


@dataclass(kw_only=True)
class SmallSearch:
    """A search that is put together as evo.search does it, but for its bank, its judge and its clock."""

    state: State
    toolbox: base.Toolbox
    keeper: Keeper
    memory: Memory
    notes: list[str]
    said: io.StringIO

    def run(self) -> StopSearch:
        return evolve(self.state, self.toolbox)


def small_bank() -> Bank:
    return load_bank([DATA / "bank.yaml"])


def small_settled(config: Config) -> Settled:
    return settle(config, MACHINE)


def assemble(
    config: Config, folder: RunFolder, archive: Archive, judge: EvaluatesAll, answerer: Answerer | None = None,
    bank: Bank | None = None,
) -> SmallSearch:  # fmt: skip
    """A new search, or the rest of the one that the folder holds."""
    settled, bank = small_settled(config), bank or small_bank()
    settings = fixed_settings(config, settled)
    require_same_settings(archive, settings)
    notes: list[str] = []
    checkpoint = newest_checkpoint(folder, fingerprint(settings), notes.append)
    memory = Memory(
        archive=archive,
        history=History(),
        sampler=build_sampler(config, bank),
        search_rng=named_rng(config.rng_seed, "search"),
        tracker=Tracker(archive=archive, earlier_s=0.0, clock=lambda: 0.0),
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
    said = io.StringIO()
    console = RunConsole(console=Console(file=said, width=200), budget=config.stop.evaluations)
    search = Search(
        config=config, settled=settled, bank=bank, memory=memory, keeper=keeper, checkpoint=checkpoint,
        note=notes.append,
    )  # fmt: skip
    return SmallSearch(
        toolbox=search.toolbox(judge, console, answerer),
        state=search.state(),
        keeper=keeper,
        memory=memory,
        notes=notes,
        said=said,
    )


def run_part(
    config: Config, folder: RunFolder, judge: EvaluatesAll | None = None, answerer: Answerer | None = None,
    bank: Bank | None = None,
) -> StopSearch:  # fmt: skip
    """Run a search, or go on with it, until it stops."""
    random.seed("whatever the process did before")  # a run must not depend on it
    with open_archive(folder) if folder.archive.exists() else create_archive(folder) as archive:
        return assemble(config, folder, archive, judge or KnobJudge(), answerer, bank).run()


def snapshot(folder: RunFolder) -> dict[str, Any]:
    """All that a run leaves behind, in a form that equal runs have in common."""
    loaded = load_newest(folder.checkpoints)
    with read_archive(folder) as archive:
        settings = {"suite": "tiny", "style": "question", "answerer": "offline", "rng_seed": 0}
        return {
            "checkpoint": None if loaded is None else asdict(loaded.checkpoint),
            "candidates": sorted(archive.individuals(), key=lambda each: each.birth),
            "evaluations": [(each.individual_id, parse_json(each.record)) for each in archive.evaluations()],
            "prompts": sorted((each.number, each.attempt, each.text) for each in archive.prompts()),
            "replies": sorted((each.number, each.attempt, each.text) for each in archive.replies()),
            "questions": sorted((each.number, each.question_id, each.text) for each in archive.questions()),
            "attempts": recorded_attempts(archive),
            "result": build_result(archive, settings=settings, generations=0, stop_reason=""),
        }
