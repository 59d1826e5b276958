"""The runs below a folder, each in one row: how it stands, worked out from its archive's plain columns."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from evo.audits import recorded_audits
from evo.config import AnswererKind
from evo.replay_mark import replayed_run
from evo.result import is_current, read_result
from evo.run_settings import recorded_settings
from evo.stop import is_final
from population.archive_lock import living_writer
from population.archive_reader import ArchiveReader, read_archive
from population.checkpoint import newest_generation
from population.faults import RunFault
from population.run_folder import RunFolder

_BETWEEN_STEPS = ("waiting for ", "generation ")  # how such a search's reason begins


class RunState(StrEnum):
    """What can be done with a run: wait for it, read its result, go on with it, or mend it."""

    RUNNING = "running"  # a living process writes its archive
    FINISHED = "finished"  # its result tells of all that it has, and of its end
    WAITING = "waiting"  # a search by files, between two of its steps
    INTERRUPTED = "interrupted"  # anything else: killed, or stopped by a signal
    DAMAGED = "damaged"  # its archive or its result cannot be read


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run. What is not known yet, or cannot be read, is None."""

    name: str  # its path below the folder
    state: RunState
    note: str  # why it ended, who writes it, or what is damaged
    best_geomean: float | None = None
    gain: float | None = None  # the best over the best seed
    evaluations: int | None = None
    generation: int | None = None  # the last that has a checkpoint
    age_s: float | None = None  # since its archive was last written
    cost_usd: float | None = None
    suite: str | None = None
    style: str | None = None
    answerer: str | None = None
    backend: str | None = None  # what measured; "recorded" looked it up in a table
    replay_of: str | None = None  # the run whose trace it followed, and whose figures these are


def list_runs(root: Path, *, now: float) -> list[RunRow]:
    """One row for each run in or below a folder, by name; `now` is in seconds since 1970.

    Archives are read beside their writers, without a lock. Raises RunFault for none of them.
    """
    rows: list[RunRow] = []

    def refuse(error: OSError) -> None:
        rows.append(RunRow(name=_name(Path(error.filename), root), state=RunState.DAMAGED, note=str(error)))

    for folder, below, files in os.walk(root, onerror=refuse):
        run = RunFolder(Path(folder))
        if run.archive.name in files:
            below.clear()
            rows.append(_row(run, _name(run.path, root), now))
    return sorted(rows, key=lambda row: [_in_order(part) for part in Path(row.name).parts])


def _in_order(part: str) -> str:
    """So that a sweep's job 10 comes after its job 9."""
    return part.zfill(9) if part.isdecimal() else part


def _name(path: Path, root: Path) -> str:
    return path.name if path == root else str(path.relative_to(root))


def _row(run: RunFolder, name: str, now: float) -> RunRow:
    writer = living_writer(run)
    age_s = _age_s(run, now)
    try:
        with read_archive(run) as archive:
            return _read(run, archive, name, writer, age_s)
    except RunFault as fault:
        state = RunState.DAMAGED if writer is None else RunState.RUNNING  # it may be about to create its tables
        return RunRow(name=name, state=state, note=str(fault), age_s=age_s)


def _read(run: RunFolder, archive: ArchiveReader, name: str, writer: str | None, age_s: float | None) -> RunRow:
    refused = [name for name, audit in recorded_audits(archive).items() if audit.failed]
    best, seed = archive.best_geomeans(without=refused)
    evaluations = archive.evaluation_count()
    generation = newest_generation(run.checkpoints)
    settings = recorded_settings(archive)
    state, note = _state(run, writer, generations=generation or 0, evaluations=evaluations)
    return RunRow(
        name=name,
        state=state,
        note=note,
        best_geomean=best,
        gain=best / seed if best and seed else None,
        evaluations=evaluations,
        generation=generation,
        age_s=age_s,
        cost_usd=archive.spend_so_far()["cost_usd"],
        suite=settings.get("suite"),
        style=settings.get("style.kind"),
        answerer=settings.get("answerer.kind"),
        backend=settings.get("backend"),
        replay_of=replayed_run(archive),
    )


def _state(run: RunFolder, writer: str | None, *, generations: int, evaluations: int) -> tuple[RunState, str]:
    if writer is not None:
        return RunState.RUNNING, writer
    try:
        result = read_result(run)
    except RunFault as fault:
        return RunState.DAMAGED, str(fault)
    if result is None:
        return RunState.INTERRUPTED, "it has no result yet"
    reason = str(result["stop_reason"])
    if not is_current(result, generations=generations, evaluations=evaluations):
        return RunState.INTERRUPTED, f"its result does not tell of all that it has: {reason}"
    if is_final(reason):
        return RunState.FINISHED, reason
    by_files = result.get("answerer") == AnswererKind.mailbox.value and reason.startswith(_BETWEEN_STEPS)
    return (RunState.WAITING if by_files else RunState.INTERRUPTED), reason


def _age_s(run: RunFolder, now: float) -> float | None:
    """Seconds since the archive or its journal was written."""
    times = list(_written(run))
    return max(0.0, now - max(times)) if times else None


def _written(run: RunFolder) -> Iterator[float]:
    for path in (run.archive, run.archive.with_name(f"{run.archive.name}-wal")):
        try:
            yield path.stat().st_mtime
        except OSError:
            continue
