"""What an archive of many individuals costs: to resume from, to go on with by one generation, to list. Needs no GPU.

The individuals are kernels/seed/tiled.cu with a number of its own in the last line of each, the evaluations of the size
that core26 gives them, and the parents a population of six in which one child of fifty replaces a member. Each part
runs in a process of its own, so that its time and memory are its own; imports are not counted.
"""

import argparse
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.loop_overhead import MadeUpJudge
from benchmarks.record import print_table, write_record
from evo.attempt_events import ATTEMPT_EVENT
from evo.choices import Settled, settle
from evo.config import BackendConfig, BackendKind, Config, StopConfig
from evo.console import RunConsole
from evo.evaluation_records import record_evaluation
from evo.history import Attempt, Outcome
from evo.loop import evolve
from evo.run_list import list_runs
from evo.run_settings import fixed_settings, require_same_settings
from evo.search import prepare_search
from evo.seeds import read_seed
from evo.toolbox import build_bank
from fitness.evaluation import Evaluation
from fitness.evaluation_key import source_sha256
from fitness.probe import look_around
from population.archive import Archive, create_archive, open_archive
from population.atomic_file import strict_json
from population.checkpoint import newest_generation
from population.individual import Individual, set_fitness
from population.records import EventRecord, PromptRecord, QuestionRecord, ReplyRecord
from population.run_folder import RunFolder

LIMIT_S = 2.0
LIMIT_MB = 500.0
_BATCH = 1000  # individuals of a transaction
_SHAPES = 200  # evaluations that are made up; the archive's are these under keys of their own
_REPLACED = 0.02  # children that take a member's place
_PROMPT = "A question about a kernel. " * 40


class Filler:
    """Writes what a search of so many mutations would have written."""

    def __init__(self, archive: Archive, mu: int) -> None:
        self._archive = archive
        self._mu = mu
        self._rng = random.Random(0)
        self._source = read_seed("tiled")
        judge = MadeUpJudge()
        self._shapes = judge.evaluate_all([f"{self._source}// {number}" for number in range(_SHAPES)])
        self.population: list[Individual] = []

    def fill(self, count: int) -> None:
        """A seed and `count` children."""
        for first in range(-1, count, _BATCH):
            with self._archive.transaction():
                for number in range(first, min(first + _BATCH, count)):
                    self._add(number)

    def _add(self, number: int) -> None:
        parent = self._rng.choice(self.population) if self.population else None
        child = Individual.from_source(
            f"{self._source}// number {number}", birth=number, generation=max(0, number // 6 + 1),
            operator="mutate" if parent else "seed", parent_ids=(parent.id,) if parent else (),
            question_id="question" if parent else None,
        )  # fmt: skip
        self._archive.record_individual(child)
        if parent is not None:
            self._tell(number, child, parent)
        evaluation = self._evaluation(child, number)
        record_evaluation(self._archive, child.id, evaluation)
        set_fitness(child, evaluation.geomean)
        if len(self.population) < self._mu:
            self.population.append(child)
        elif self._rng.random() < _REPLACED:
            self.population[self._rng.randrange(self._mu)] = child

    def _tell(self, number: int, child: Individual, parent: Individual) -> None:
        """The question, the prompt, the reply and the attempt behind a child."""
        attempt = Attempt(
            number=number, generation=child.generation, operator="mutate", parent_ids=(parent.id,), moment="any",
            question_id="question", layer="memory", style="question", hint="Where do the bytes go? " * 8,
            outcome=Outcome.CHILD, detail="BLOCK_M = 64", claim="", child_id=child.id,
        )  # fmt: skip
        self._archive.record_question(
            QuestionRecord(
                number=number, question_id="question", moment="any", layer="memory", style="question",
                text=attempt.hint, origin="bank",
            )
        )  # fmt: skip
        self._archive.record_prompt(PromptRecord(number=number, attempt=0, text=_PROMPT))
        self._archive.record_reply(
            ReplyRecord(
                number=number, attempt=0, text=_PROMPT, model="made up", finish_reason="stop", prompt_tokens=9000,
                completion_tokens=900, cost_usd=0.01, estimated=False,
            )
        )  # fmt: skip
        self._archive.record_event(EventRecord(kind=ATTEMPT_EVENT, record=strict_json(attempt.to_json())))

    def _evaluation(self, child: Individual, number: int) -> Evaluation:
        digest = source_sha256(child.source)
        return replace(self._shapes[number % _SHAPES], key=f"key of {digest}", source_sha256=digest)


def make(folder: RunFolder, individuals: int) -> dict[str, float]:
    """An archive and a checkpoint as a search of so many individuals leaves them."""
    start = time.perf_counter()
    folder.path.mkdir(parents=True)
    config, settled = _settled(0)
    with create_archive(folder) as archive:
        require_same_settings(archive, fixed_settings(config, settled))
        prepared = prepare_search(config, settled, build_bank(config), archive, folder, note=print)
        filler = Filler(archive, config.evolution.mu)
        filler.fill(individuals)
        state = prepared.keeper.fresh(config.rng_seed)
        state.population = filler.population
        state.hall_of_fame.update(filler.population)
        state.generation = _generations(individuals)
        state.next_birth = individuals
        for number in range(state.generation):
            state.logbook.record(generation=number, asked=6, new=6, passed=6, best=1.0, mean=1.0)
        prepared.keeper.save(state)
    return {"make_s": time.perf_counter() - start}


def resume(folder: RunFolder, individuals: int) -> dict[str, float]:
    """Seconds to open and restore, and then to make one more generation and write it down."""
    config, settled = _settled((newest_generation(folder.checkpoints) or 0) + 1)
    bank, judge = build_bank(config), MadeUpJudge()
    start, start_processor = time.perf_counter(), time.process_time()
    with open_archive(folder) as archive:
        require_same_settings(archive, fixed_settings(config, settled))
        prepared = prepare_search(config, settled, bank, archive, folder, note=print)
        toolbox = prepared.toolbox(judge, RunConsole(console=Console(file=io.StringIO()), budget=None))
        state = prepared.state()
        faults = sum(1 for _ in archive.kernel_faults())
        opened, opened_processor = time.perf_counter(), time.process_time()
        stop = evolve(state, toolbox)
        evolved, evolved_processor = time.perf_counter(), time.process_time()
        result = prepared.result(state, stop)
        ended = time.perf_counter()
    if faults or not stop.reason.startswith("generation budget reached"):
        raise RuntimeError(f"{faults} kernel files at fault; stopped: {stop.reason}")
    if result["evaluations"] <= individuals:
        raise RuntimeError(f"{result['evaluations']} evaluations; expected more than {individuals}")
    return {
        "start_s": opened - start, "start_processor_s": opened_processor - start_processor,
        "generation_s": evolved - opened, "generation_processor_s": evolved_processor - opened_processor,
        "result_s": ended - evolved,
    }  # fmt: skip


def show(folder: RunFolder, individuals: int) -> dict[str, float]:
    """Seconds that `evo runs` takes for it."""
    start = time.perf_counter()
    [row] = list_runs(folder.path.parent, now=time.time())
    seconds = time.perf_counter() - start
    if row.evaluations is None or row.evaluations <= individuals:
        raise RuntimeError(f"evo runs: {row}")
    return {"runs_s": seconds}


PARTS = {"make": make, "resume": resume, "show": show}


def _generations(individuals: int) -> int:
    return -(-individuals // Config().evolution.lambda_)


def _settled(generations: int) -> tuple[Config, Settled]:
    config = Config(
        seeds=["tiled"], backend=BackendConfig(kind=BackendKind.host), stop=StopConfig(generations=generations)
    )
    return config, settle(config, look_around())


def _in_a_process(part: str, folder: Path, individuals: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--part", part, str(individuals), "--folder", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(f"{part}: {said.stderr}")
    figures: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return figures


def _folders(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("individuals", nargs="?", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the archive lies, or is made; by default a temporary one")
    parser.add_argument("--out", type=Path, default=Path("docs/results/scale.json"))
    parser.add_argument("--part", choices=PARTS, help="this alone, in this process")
    arguments = parser.parse_args()
    if arguments.part:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        figures = PARTS[arguments.part](RunFolder(arguments.folder / "large"), arguments.individuals)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({**figures, "peak_mb": peak / 1024, "imports_mb": before / 1024}))
        return
    for folder in _folders(arguments.folder):
        _measure(folder, arguments.individuals, arguments.out)


def _measure(folder: Path, individuals: int, out: Path) -> None:
    parts = [part for part in PARTS if part != "make" or not (folder / "large").exists()]
    figures = {part: _in_a_process(part, folder, individuals) for part in parts}
    rows: Sequence[tuple[str, float, float]] = [
        (f"{part}: {name}", value, LIMIT_MB if name.endswith("_mb") else LIMIT_S)
        for part, found in figures.items()
        if part != "make"
        for name, value in found.items()
    ]
    print_table(("", "measured", "limit"), rows)
    size = {"archive_gb": (folder / "large" / "archive.sqlite").stat().st_size / 1e9}
    limits = {"seconds": LIMIT_S, "megabytes": LIMIT_MB}
    write_record(out, look_around(), {"individuals": individuals, **size, **figures, "limits": limits}, {})


if __name__ == "__main__":
    main()
