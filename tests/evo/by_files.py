"""A search by files in little: the real commands, answered by the offline answerer, measured by a table of knobs."""

import functools
import io
import itertools
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from small_search import MACHINE, SEED, judge_knobs

from evo.answerers.answerer import Request
from evo.answerers.offline import OfflineAnswerer
from evo.attempt_events import recorded_attempts
from evo.cli import run
from evo.measuring import find_work, measure, settle_here
from evo.run import run_search
from evo.settings import compose_config
from evo.workbench import open_evaluator
from fitness.backends.recorded import export_table
from fitness.evaluation import Evaluation
from fitness.manifest import read_manifest, with_knobs
from population.archive_reader import read_archive
from population.atomic_file import parse_json
from population.checkpoint import load_newest
from population.individual import normalise
from population.run_folder import RunFolder, create_run_folder

OPTIONS = (
    f"seeds=['{SEED}']", "suite=smoke", "evolution.mu=3", "evolution.lambda_=3", "evolution.crossover_probability=0.3",
)  # fmt: skip

_PARENT = re.compile(r"^# (?:The kernel|A second kernel[^\n]*)\n\n```cuda\n(.*?)^```", re.MULTILINE | re.DOTALL)


def judge(source: str) -> Evaluation:
    """What the knobs are worth, as if measured on the suite that `OPTIONS` name."""
    return replace(judge_knobs(source), suite="smoke")


def write_table(path: Path, change: Callable[[Evaluation], Evaluation] = lambda evaluation: evaluation) -> Path:
    """A table with every kernel that the offline answerer can come to."""
    export_table([change(evaluation) for evaluation in every_evaluation()], path)
    return path


@functools.cache
def every_evaluation() -> tuple[Evaluation, ...]:
    seed = normalise(SEED.read_text(encoding="utf-8"))
    knobs = read_manifest(seed).knobs
    settings = itertools.product(*(knob.choices for knob in knobs))
    names = [knob.name for knob in knobs]
    sources = [with_knobs(seed, dict(zip(names, values, strict=True))) for values in settings]
    return tuple(judge(source) for source in sources)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    errors: str


@dataclass(frozen=True, kw_only=True)
class ByFiles:
    """A run by files, and the three who work on it."""

    folder: RunFolder
    table: Path

    def begin(self, *words: str) -> Said:
        return self.command("ask", *OPTIONS, "answerer.model=me", *words)

    def ask(self, *words: str) -> Said:
        return self.command("ask", *words)

    def tell(self, *words: str) -> Said:
        return self.command("tell", *words)

    def command(self, name: str, *words: str) -> Said:
        return evo(name, str(self.folder.path), *words)

    def evaluate(self, folder: RunFolder | None = None) -> list[str]:
        """What `evo evaluate` does, without looking for a GPU."""
        work = find_work(folder or self.folder, ["backend=recorded", f"backend.table='{self.table}'"])
        if not work.sources:
            return []
        settled = settle_here(work, MACHINE)
        return list(measure(work, settled, MACHINE, open_evaluator, lambda _name, _evaluation: None).evaluations)

    def answers(self) -> dict[str, str]:
        """The offline answerer's replies to the prompts in the outbox, by their names."""
        with read_archive(self.folder) as archive:
            replies = {}
            for path in sorted(self.folder.outbox.glob("*.md")):
                number, _, attempt = path.stem.partition("-")
                question = archive.question(int(number))
                assert question is not None
                prompt = path.read_text(encoding="utf-8")
                request = Request(
                    number=int(number), attempt=int(attempt or 0), prompt=prompt, layer=question.layer,
                    parent_sources=tuple(_PARENT.findall(prompt)),
                )  # fmt: skip
                replies[path.name] = OfflineAnswerer(rng_seed=0).answer(request).text
        return replies

    def answer(self, *names: str) -> None:
        """Put replies into the inbox: to these prompts, or to all."""
        for name, text in self.answers().items():
            if not names or name in names:
                (self.folder.inbox / name).write_text(text, encoding="utf-8")

    def generation(self, *words: str) -> None:
        """One whole generation."""
        self.ask(*words)
        self.answer()
        self.tell()
        self.evaluate()
        self.tell()

    def whole_run(self, generations: int) -> None:
        self.begin("n=3")
        self.evaluate()
        for _ in range(generations):
            self.generation("n=3")


def by_files(root: Path, name: str = "by-files") -> ByFiles:
    table = root / "table.jsonl"
    return ByFiles(folder=RunFolder(root / name), table=table if table.exists() else write_table(table))


def copied(run: ByFiles, root: Path) -> ByFiles:
    """The same run in another place: a run may be carried."""
    path = root / run.folder.name
    shutil.copytree(run.folder.path, path)
    return replace(run, folder=RunFolder(path))


def evo(*words: str) -> Said:
    """One command of the console script."""
    out, errors = io.StringIO(), io.StringIO()
    code = run(words, Console(file=out, width=200), Console(file=errors, width=200))
    return Said(code=code, out=out.getvalue(), errors=errors.getvalue())


def evolved(root: Path, table: Path, *words: str) -> RunFolder:
    """The same run as `evo evolve` makes it."""
    folder = create_run_folder(root, "evolved")
    config = compose_config([*OPTIONS, "backend=recorded", f"backend.table='{table}'", *words])
    run_search(config, MACHINE, folder, Console(file=io.StringIO()))
    return folder


def left_behind(folder: RunFolder) -> Mapping[str, Any]:
    """What equal runs have in common, whoever answered and wherever they were measured."""
    loaded = load_newest(folder.checkpoints)
    checkpoint = None if loaded is None else asdict(loaded.checkpoint)
    if checkpoint is not None:
        del checkpoint["settings_fingerprint"], checkpoint["counters"]["elapsed_ms"]
    with read_archive(folder) as archive:
        return {
            "checkpoint": checkpoint,
            "candidates": sorted(archive.individuals(), key=lambda each: each.birth),
            "evaluations": [(each.individual_id, parse_json(each.record)) for each in archive.evaluations()],
            "prompts": sorted((each.number, each.attempt, each.text) for each in archive.prompts()),
            "replies": sorted((each.number, each.attempt, each.text) for each in archive.replies()),
            "questions": sorted((each.number, each.question_id, each.text) for each in archive.questions()),
            "attempts": recorded_attempts(archive),
        }


def names(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in folder.iterdir())
