"""measured/: evaluations that were made elsewhere, one file a candidate, and the evaluator that takes them in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.pending import Job
from evo.stop import StopSearch
from fitness.evaluation import Evaluation
from population.atomic_file import parse_json, strict_json, write_atomically
from population.individual import individual_id
from population.run_folder import writing


class EvaluationsAwaited(StopSearch):
    """Some candidates are not measured yet; the generation is made again once they are."""

    def __init__(self, sources: Sequence[str]) -> None:
        count = len(sources)
        super().__init__(f"waiting for {count} candidate{'s' if count > 1 else ''} to be measured")
        self.sources = tuple(sources)


@dataclass(frozen=True, kw_only=True)
class MeasuredFiles:
    """The evaluations that lie in a folder, as far as they are of this job; `note` hears of those that are not."""

    folder: Path
    job: Job
    note: Callable[[str], None]

    def find(self, source: str) -> Evaluation | None:
        """The evaluation of a source; None where there is none that can be used."""
        path = measured_path(self.folder, source)
        try:
            evaluation = Evaluation.from_json(parse_json(path.read_bytes().decode("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.note(f"{path} is no evaluation, or not whole ({error!r}); carry it again, or measure again")
            return None
        refusal = self.job.refusal(source, evaluation)
        if refusal:
            self.note(f"{path} is not taken: {refusal}; measure it again where the run began")
            return None
        return evaluation


class MeasuredElsewhere:
    """Evaluates as a device does, by what was measured elsewhere: all of the sources, or none yet.

    All at once and in their order, so that nothing depends on which file came first.
    """

    def __init__(self, files: MeasuredFiles) -> None:
        self._files = files

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        """One evaluation a source, in the sources' order. Raises EvaluationsAwaited where one is not there."""
        found = [self._files.find(source) for source in sources]
        missing = [source for source, evaluation in zip(sources, found, strict=True) if evaluation is None]
        if missing:
            raise EvaluationsAwaited(missing)
        evaluations = [evaluation for evaluation in found if evaluation is not None]
        for place, evaluation in enumerate(evaluations):
            if on_done is not None:
                on_done(place, evaluation)
        return evaluations


def write_measured(folder: Path, source: str, evaluation: Evaluation) -> None:
    """Put the evaluation of a source in place, whole or not at all. Raises RunFolderError where it cannot."""
    path = measured_path(folder, source)
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, strict_json(evaluation.to_json()) + "\n")


def measured_path(folder: Path, source: str) -> Path:
    """Where the evaluation of a source lies."""
    return folder / f"{individual_id(source)}.json"
