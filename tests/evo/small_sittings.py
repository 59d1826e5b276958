"""A single shot by files about one parent, and sittings in which its speed differs."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from by_files import ByFiles, by_files, judge
from small_records import failed, passed
from small_search import MACHINE, SEED

from evo.choices import Settled
from evo.compare.shots import Shot, read_shots
from evo.config import Config
from evo.judging import EvaluatesAll
from evo.measuring import Measurements, find_work, measure, settle_here
from evo.sittings import Sitting
from fitness.evaluation import Evaluation, Status
from fitness.manifest import with_knobs
from fitness.probe import Machine
from population.archive_reader import read_archive
from population.atomic_file import parse_json, strict_json
from population.individual import individual_id
from population.run_folder import RunFolder

PARENT = SEED.read_text(encoding="utf-8")
WRONG = with_knobs(PARENT, {"STAGES": 4, "BLOCK_M": 128})  # a seed that does not pass, and so is no parent
PARENT_ID = individual_id(PARENT)


class Sitter:
    """EvaluatesAll: the parent at another speed in each sitting, None where it fails, and children at one speed."""

    def __init__(
        self, parent: float | None, meanwhile: Callable[[int], None] = lambda _count: None, *, child: float = 1.10
    ) -> None:
        self._parent = parent
        self._child = child
        self._meanwhile = meanwhile
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        evaluations = []
        for place, source in enumerate(sources):
            self._meanwhile(len(self.judged))
            self.judged.append(individual_id(source))
            evaluations.append(self._evaluation(source))
            if on_done is not None:
                on_done(place, evaluations[-1])
        return evaluations

    @contextlib.contextmanager
    def opened(self, config: Config, settled: Settled, machine: Machine) -> Iterator[EvaluatesAll]:
        yield self

    def _evaluation(self, source: str) -> Evaluation:
        speed = self._parent if individual_id(source) == PARENT_ID else self._child
        if speed is None or individual_id(source) == individual_id(WRONG):
            return failed(source, Status.INCORRECT, "o differs", suite="smoke")
        return measured_at(source, speed)


def measured_at(source: str, speed: float) -> Evaluation:
    return passed(source, dict.fromkeys(judge(PARENT).speedups, speed), suite="smoke")


def sit(folder: RunFolder, sitter: Sitter) -> tuple[Measurements, list[str]]:
    """What `evo evaluate` does in a sitting, and what it hears of as measured again."""
    work, heard = find_work(folder, ["backend=recorded", "backend.table=x"]), []
    settled = settle_here(work, MACHINE)
    done = measure(
        work, settled, MACHINE, sitter.opened, lambda _name, _evaluation: None, lambda name, _: heard.append(name)
    )
    return done, heard


def begin_shot(root: Path) -> ByFiles:
    """A single shot about one parent, which was at 1.08 in the first sitting; its children wait."""
    (root / "wrong.cu").write_text(WRONG, encoding="utf-8")
    run = by_files(root)
    styles = "single_shot.styles=[question,bare]"
    run.begin("experiment=single_shot", "single_shot.questions=6", styles, f"seeds=['{SEED}','{root / 'wrong.cu'}']")
    sit(run.folder, Sitter(1.08))
    run.ask()
    run.answer()
    return run


def children(run: ByFiles) -> list[str]:
    """Those that wait, by their ids."""
    return sorted(path.stem for path in run.folder.pending.glob("*.cu") if path.stem != PARENT_ID)


def again_files(run: ByFiles) -> list[Path]:
    """A file for each sitting that measured a child, the oldest first."""
    return sorted((run.folder.measured / "again").glob("*"))


def sittings(run: ByFiles) -> list[Sitting]:
    """What stands in those files."""
    return [Sitting.from_json(parse_json(path.read_text(encoding="utf-8"))) for path in again_files(run)]


def put_sitting(path: Path, sitting: Sitting) -> None:
    """Write a sitting by hand."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(strict_json(sitting.to_json()), encoding="utf-8")


def recorded(run: ByFiles) -> Mapping[str | None, Sitting]:
    """The sittings that the archive holds, by their events' keys."""
    with read_archive(run.folder) as archive:
        return {each.key: Sitting.from_json(parse_json(each.record)) for each in archive.events_of("remeasured")}


def shots(run: ByFiles) -> list[Shot]:
    """Those that led to a kernel of their own."""
    return [shot for shot in read_shots("one", run.folder) if shot.outcome == "child"]
