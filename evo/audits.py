"""The audits that an archive holds, and its evaluations in their light: what an audit refused counts as wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fitness.audit_record import Audit, after_audit
from fitness.evaluation import Evaluation
from population.archive_reader import ArchiveReader
from population.atomic_file import parse_json
from population.records import Score

AUDIT_EVENT = "audit"  # of a suspicious win, when it was judged
CHAMPION_EVENT = "champion_audit"  # of the best, when the run came to its end


def recorded_audits(archive: ArchiveReader, *kinds: str) -> dict[str, Audit]:
    """The audits of these kinds, or of both, by the individual's id; the later one holds the earlier one's checks."""
    audits: dict[str, Audit] = {}
    for event in archive.events_of(*(kinds or (AUDIT_EVENT, CHAMPION_EVENT))):
        if event.key is not None:
            audits[event.key] = Audit.from_json(parse_json(event.record))
    return audits


def recorded_audit(archive: ArchiveReader, kind: str, individual_id: str) -> Audit | None:
    """One kind of audit of one individual, or None."""
    event = archive.event(kind, individual_id)
    return None if event is None else Audit.from_json(parse_json(event.record))


def judged_evaluation(archive: ArchiveReader, individual_id: str, audits: Mapping[str, Audit]) -> Evaluation | None:
    """An individual's latest evaluation; None where there is none."""
    recorded = archive.evaluation_json(individual_id)
    return None if recorded is None else _judged(recorded, audits.get(individual_id))


def judged_evaluations(archive: ArchiveReader) -> Iterator[tuple[str, Evaluation]]:
    """Every evaluation with its individual's id, in the order in which they were made."""
    audits = recorded_audits(archive)
    for record in archive.evaluations():
        yield record.individual_id, _judged(record.record, audits.get(record.individual_id))


def judged_scores(archive: ArchiveReader, audits: Mapping[str, Audit] | None = None) -> Iterator[Score]:
    """Every evaluation without its record, in the same order; `audits` are those of the archive where left out."""
    known = recorded_audits(archive) if audits is None else audits
    failed = {name: audit for name, audit in known.items() if audit.failed}
    for score in archive.scores():
        recorded = archive.evaluation_json(score.individual_id, score.key) if score.individual_id in failed else None
        if recorded is None or score.geomean is None:
            yield score
        else:
            left = _judged(recorded, failed[score.individual_id])
            yield replace(score, status=str(left.status), geomean=left.geomean)


def _judged(recorded: str, audit: Audit | None) -> Evaluation:
    return after_audit(Evaluation.from_json(parse_json(recorded)), audit)


def verdict(audit: Audit | None) -> str:
    """An audit in a word or three: passed, passed in part, failed, or not run."""
    return "not run" if audit is None else audit.verdict


def told(audit: Audit) -> str:
    """The verdict with what failed, or with what passed and all that was not checked and why."""
    return f"failed: {audit.reason}" if audit.failed else verdict_words(audit.verdict, audit.made, audit.left_out)


def verdict_words(found: str, made: Sequence[str], left_out: Mapping[str, str]) -> str:
    """The verdict; where some checks were not made, with those that passed, then those by their reasons."""
    if not left_out:
        return found
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    words = [f"{found} ({', '.join(made)})" if made else found]
    for why, names in by_reason.items():
        finding, _, detail = why.partition(": ")
        words.append(f"{finding}: {', '.join(names)} ({detail})")
    return "; ".join(words)
