"""pending/: the candidates that wait to be measured, and in job.json all that measuring them takes.

The folder is enough: whoever measures needs neither the archive nor the model, and perhaps sits on another machine.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evo.config import BackendConfig, BaselineConfig, Config, JudgeConfig, SuiteConfig
from fitness.evaluation import Environment, Evaluation
from fitness.evaluation_key import source_sha256
from fitness.faults import EnvironmentFault
from population.atomic_file import parse_json, strict_json, write_atomically
from population.individual import individual_id
from population.run_folder import writing

JOB = "job.json"
SCHEMA = 1

_ID = re.compile(r"k[0-9a-f]{12}")
REMEDY = "carry the folder here again, or let evo ask or evo tell write it again"
_PARTS: Mapping[str, type] = {
    "backend": BackendConfig, "baseline": BaselineConfig, "suite": SuiteConfig, "judge": JudgeConfig,
}  # fmt: skip

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Job:
    """How the candidates of a run are measured. `environment` is where its first one was; None before that."""

    backend: BackendConfig
    baseline: BaselineConfig
    suite: SuiteConfig
    judge: JudgeConfig
    environment: Environment | None
    again: tuple[str, ...] = ()  # of the sources, those to be measured once more wherever another one is

    def refusal(self, source: str, evaluation: Evaluation) -> str:
        """Why the evaluation is not of this job and this source; "" where it is.

        The driver may differ: a record notes it, but an update makes no other measurement.
        """
        if evaluation.source_sha256 != source_sha256(source):
            return "it is of another source"
        if evaluation.suite != self.suite.name:
            return f"it was measured on the suite {evaluation.suite}, and the run is on {self.suite.name}"
        differing = [] if self.environment is None else differences(self.environment, evaluation.environment)
        return f"the run began elsewhere: {', '.join(differing)}" if differing else ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `read_job` gives the equal job back."""
        parts = {name: _plain(getattr(self, name)) for name in _PARTS}
        again = {"again": list(self.again)} if self.again else {}
        began = None if self.environment is None else vars(self.environment)
        return {"schema": SCHEMA, **parts, "environment": began, **again}


def job_of(config: Config, environment: Environment | None) -> Job:
    """The job of a run with this configuration."""
    return Job(
        backend=config.backend,
        baseline=config.baseline,
        suite=config.suite,
        judge=config.judge,
        environment=environment,
    )


def differences(began: Environment, now: Environment) -> list[str]:
    """What of two environments differs and counts, in words."""
    names = ("backend", "device", "compiler", "baseline", "baseline_version")
    pairs = [(name, getattr(began, name), getattr(now, name)) for name in names]
    return [f"{name.replace('_', ' ')} was {before}, now {after}" for name, before, after in pairs if before != after]


def read_job(pending: Path) -> Job:
    """What job.json says. Raises EnvironmentFault where it is missing or is not what `publish` wrote."""
    path = pending / JOB
    try:
        record = parse_json(path.read_bytes().decode("utf-8"))
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise ValueError(f"expected a job of schema {SCHEMA}")
        parts: dict[str, Any] = {name: _typed(kind, record[name]) for name, kind in _PARTS.items()}
        began = record["environment"]
        again = _ids(record.get("again", []))
        return Job(**parts, environment=None if began is None else Environment(**began), again=again)
    except FileNotFoundError as error:
        raise EnvironmentFault(f"{path} is not there, so there is nothing to measure; {REMEDY}") from error
    except KeyError as error:
        raise EnvironmentFault(f"{path}: {error} is missing; {REMEDY}") from error
    except (OSError, ValueError, TypeError, OmegaConfBaseException) as error:
        raise EnvironmentFault(f"{path} cannot be used ({error}); {REMEDY}") from error


def publish(pending: Path, job: Job, sources: Sequence[str]) -> None:
    """Make the folder hold the job and these sources, and no others. Raises RunFolderError where it cannot.

    The job comes first and goes never, so that no source lies there without it.
    """
    wanted = {f"{individual_id(source)}.cu": source for source in sources}
    with writing(pending):
        pending.mkdir(exist_ok=True)
        _write(pending / JOB, strict_json(job.to_json(), indent=2) + "\n")
        for name, source in wanted.items():
            _write(pending / name, source)
        for path in _kernels(pending):
            if path.name not in wanted:
                path.unlink(missing_ok=True)


def pending_sources(pending: Path) -> tuple[dict[str, str], list[str]]:
    """The sources that wait, by id, and one sentence for each file that is not whole: it was carried in part."""
    whole: dict[str, str] = {}
    notes = []
    for path in _kernels(pending):
        try:
            source = path.read_bytes().decode("utf-8")
        except FileNotFoundError:  # taken in meanwhile
            continue
        except (OSError, UnicodeDecodeError) as error:
            notes.append(f"{path} cannot be read ({error}); carry it again")
            continue
        if individual_id(source) == path.stem:
            whole[path.stem] = source
        else:
            notes.append(f"{path} is not whole, or was altered: its text has the id {individual_id(source)}")
    return whole, notes


def _typed(kind: type[Part], record: object) -> Part:
    """A part of the configuration from plain JSON types. Raises OmegaConfBaseException, ValueError or TypeError."""
    if not isinstance(record, dict) or "${" in strict_json(record):  # no file may read this machine's variables
        raise ValueError(f"{kind.__name__}: expected an object of plain values")
    return cast(Part, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), record)))


def _ids(record: object) -> tuple[str, ...]:
    if not isinstance(record, list) or not all(isinstance(each, str) and _ID.fullmatch(each) for each in record):
        raise ValueError("again: expected a list of candidates' ids")
    return tuple(record)


def _kernels(pending: Path) -> list[Path]:
    return sorted(path for path in pending.glob("k*.cu") if _ID.fullmatch(path.stem))


def _write(path: Path, text: str) -> None:
    """Leave a file that holds the text as it is: its time of writing may decide whether it is carried again."""
    if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
        write_atomically(path, text)


def _plain(part: object) -> object:
    """The fields of a configuration's part as JSON types."""
    if isinstance(part, Enum):
        return part.value
    if isinstance(part, list):
        return [_plain(each) for each in part]
    return {name: _plain(value) for name, value in vars(part).items()} if hasattr(part, "__dict__") else part
