"""How the questions of a run have done, worked out from its archive: beside a search that is running, or after it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from evo.added_questions import questions_taken_in
from evo.attempt_events import recorded_attempts
from evo.audits import judged_evaluations
from evo.history import Attempt, History, Outcome
from evo.judging import question_outcome
from population.archive_reader import ArchiveReader
from population.records import QuestionRecord
from questions.credit import QuestionStatistics, Tally, statistics_of
from questions.entry import write_entry
from questions.question import Question

RECURS = 2  # how often a person's question must have been put to be worth a place in a bank, if it brought no gain


@dataclass(frozen=True, kw_only=True)
class QuestionRow:
    """One question of a run: what it was, when it came up, and what it has brought."""

    text: str  # as it was asked first
    layer: str
    moments: tuple[str, ...]  # at which it was asked, the most frequent first
    statistics: QuestionStatistics
    unfinished: int = 0  # how often asked besides, in a generation that is not complete: that counts nowhere yet
    moved_from: tuple[tuple[str, int], ...] = ()  # the layers from which it moved a line to its own, and how often


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """A person's question that is worth a place in a bank, and why."""

    question: Question
    why: str


def question_rows(archive: ArchiveReader) -> list[QuestionRow]:
    """One row for each question asked, those that gained most often first.

    What a generation under way asked is unfinished: it counts, with its outcomes, once the generation is complete.
    """
    asked: dict[str, list[QuestionRecord]] = {}
    for record in archive.questions():
        asked.setdefault(record.question_id, []).append(record)
    attempts = recorded_attempts(archive)  # before the evaluations, for those of an attempt are recorded before it
    tallies, moves = _tallies(archive, attempts), _moves(attempts)
    settled = {attempt.number for attempt in attempts}
    counted = {name: sum(record.number in settled for record in records) for name, records in asked.items()}
    rows = [
        QuestionRow(
            text=records[0].text,
            layer=records[0].layer,
            moments=tuple(moment for moment, _ in Counter(record.moment for record in records).most_common()),
            statistics=statistics_of(question_id, _asked(tallies.get(question_id, Tally()), counted[question_id])),
            unfinished=len(records) - counted[question_id],
            moved_from=tuple(moves.get(question_id, Counter()).most_common()),
        )
        for question_id, records in asked.items()
    ]
    return sorted(rows, key=lambda row: (-row.statistics.gained, -row.statistics.asked, row.statistics.question_id))


def promotions(archives: Mapping[str, ArchiveReader]) -> list[Promotion]:
    """The people's questions of some runs, by the runs' names, that were put again or brought a gain."""
    puts: dict[str, list[str]] = {}
    questions: dict[str, Question] = {}
    gains: Counter[str] = Counter()
    for run, archive in archives.items():
        for taken in questions_taken_in(archive):
            questions.setdefault(taken.question.id, taken.question)
            puts.setdefault(taken.question.id, []).append(run)
        for row in question_rows(archive):
            gains[row.statistics.question_id] += row.statistics.gained
    return [
        Promotion(question=question, why=_why(puts[question_id], gains[question_id]))
        for question_id, question in questions.items()
        if len(puts[question_id]) >= RECURS or gains[question_id]
    ]


def bank_entries(promoted: Sequence[Promotion]) -> str:
    """The questions as YAML that a bank file can hold as it is, each after a comment on where it came from.

    No change is prescribed: a person's words do not name one.
    """
    entries = []
    for promotion in promoted:
        entry = {**write_entry(promotion.question), "prescription": None, "origin": f"person, {promotion.why}"}
        entries.append(yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=1_000_000))
    return "\n".join(entries)


def _why(runs: Sequence[str], gained: int) -> str:
    times = f"{len(runs)} times" if len(runs) > 1 else "once"
    gains = f"{gained} gain{'s' if gained > 1 else ''}" if gained else "no gain yet"
    return f"put {times} to {', '.join(dict.fromkeys(runs))}: {gains}"


def _moves(attempts: Sequence[Attempt]) -> dict[str, Counter[str]]:
    """By question, the layers of the questions that had made its parents, where they were not its own."""
    made_in = {attempt.child_id: attempt.layer for attempt in attempts if attempt.outcome is Outcome.CHILD}
    moves: dict[str, Counter[str]] = {}
    for attempt in attempts:
        before = made_in.get(attempt.parent_ids[0])
        if before not in (None, attempt.layer) and attempt.outcome is Outcome.CHILD:
            moves.setdefault(attempt.question_id, Counter())[str(before)] += 1
    return moves


def _tallies(archive: ArchiveReader, attempts: Sequence[Attempt]) -> dict[str, Tally]:
    history = _history(archive)
    tallies: dict[str, Tally] = {}
    for attempt in attempts:
        if attempt.outcome is not Outcome.UNANSWERED:
            tally = tallies.get(attempt.question_id, Tally())
            tallies[attempt.question_id] = tally.plus(question_outcome(history, attempt))
    return tallies


def _history(archive: ArchiveReader) -> History:
    history = History()
    for name, evaluation in judged_evaluations(archive):
        history.add_evaluation(name, evaluation)
    return history


def _asked(tally: Tally, count: int) -> Tally:
    for _ in range(count):
        tally = tally.plus_asked()
    return tally
