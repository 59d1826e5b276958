"""From a run's archive to the account of it: read beside a search or after it, never locked, never written."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from evo.attempt_events import recorded_attempts
from evo.audits import CHAMPION_EVENT, judged_evaluation, judged_scores, recorded_audit, recorded_audits
from evo.history import Attempt, Outcome
from evo.noise import noise
from evo.question_records import question_rows
from evo.report.account import Account, Change, Detail, Measured, Milestone, Step
from evo.report.diff import diff_of
from evo.report.thinning import (
    MOST_AUDITS,
    MOST_COLUMNS,
    MOST_DETAILED,
    MOST_QUESTIONS,
    MOST_SOURCE,
    Room,
    cut,
    most_telling,
)
from evo.run_list import list_runs
from evo.run_settings import recorded_settings
from fitness.evaluation import Evaluation
from population.archive_reader import ArchiveReader, read_archive
from population.atomic_file import parse_json
from population.faults import ArchiveError
from population.lineage import Lineage
from population.records import Birth, Score
from population.run_folder import RunFolder


def read_account(run: RunFolder, *, now: float) -> Account:
    """All that a page tells of a run; `now` is in seconds since 1970. Raises RunFault where it cannot be read."""
    with read_archive(run) as archive:
        try:
            return _Reading(run.path, archive).account(now)
        except (KeyError, TypeError, ValueError) as error:
            trouble = f"it holds a record that cannot be read ({error!r})"
            raise ArchiveError(f"{run.archive}: {trouble}; restore a copy, or use the evo that wrote it") from error


class _Reading:
    """What needs the rest is read first: a search may be writing."""

    def __init__(self, path: Path, archive: ArchiveReader) -> None:
        self._path = path
        self._archive = archive
        self._audits = recorded_audits(archive)
        scores = list(judged_scores(archive, self._audits))
        self._attempts = recorded_attempts(archive)
        self._asked = {each.child_id: each for each in self._attempts if each.outcome is Outcome.CHILD}
        self._births = {birth.id: birth for birth in archive.births()}
        self._geomeans = {score.individual_id: score.geomean for score in scores}
        self._measured = tuple(_measured(scores, self._births))
        self._places = {each.kernel: each.place for each in self._measured}
        self._tops = _tops(self._measured)
        self._keys = [score.key for score in scores]

    def account(self, now: float) -> Account:
        records = {each.place: self._evaluation(each) for each in self._shown_tops()}
        line, beside = self._lines()
        return Account(
            row=list_runs(self._path, now=now)[0],
            measured=self._measured,
            births=tuple(self._births.values()),
            milestones=tuple(_milestone(each, records.get(each.place)) for each in self._tops),
            line=line,
            beside=beside,
            questions=tuple(question_rows(self._archive)[:MOST_QUESTIONS]),
            childless=_childless(self._attempts),
            spend=self._archive.spend_so_far(),
            environments=tuple(dict.fromkeys(record.environment for record in records.values())),
            settings=recorded_settings(self._archive),
            champion_source=cut(self._source(self._tops[-1].kernel), MOST_SOURCE) if self._tops else "",
            audits=dict(list(self._audits.items())[-MOST_AUDITS:]),
            best_audit=recorded_audit(self._archive, CHAMPION_EVENT, self._tops[-1].kernel) if self._tops else None,
        )

    def _shown_tops(self) -> list[Measured]:
        return [self._tops[place] for place in most_telling(gains_over_last(self._tops), MOST_COLUMNS)]

    def _evaluation(self, one: Measured) -> Evaluation:
        record = self._archive.evaluation_json(one.kernel, self._keys[one.place - 1])
        return Evaluation.from_json(parse_json(record or "null"))

    def _lines(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The champion's line and the milestones beside it; the greatest gains get the page's room first."""
        if not self._tops:
            return (), ()
        lineage = Lineage((birth.id, birth.parent_ids) for birth in self._births.values())
        line = list(reversed(lineage.line(self._tops[-1].kernel)))
        beside = [each.kernel for each in reversed(self._tops) if each.kernel not in set(line)]
        names = list(dict.fromkeys([*line, *beside]))
        gains = {name: self._gain(self._births[name]) for name in names}
        first = dict.fromkeys((line[0], line[-1], *(each.kernel for each in self._shown_tops())), math.inf)
        ranked = sorted(names, key=lambda name: -first.get(name, gains[name] or 0.0))[:MOST_DETAILED]
        room = Room()
        details = {name: self._detail(self._births[name], room) for name in ranked}
        steps = {name: self._step(self._births[name], gains[name], details.get(name)) for name in names}
        return tuple(steps[name] for name in line), tuple(steps[name] for name in dict.fromkeys(beside))

    def _step(self, birth: Birth, gain: float | None, detail: Detail | None) -> Step:
        return Step(
            kernel=birth.id,
            evaluation=self._places.get(birth.id),
            generation=birth.generation,
            operator=birth.operator,
            parents=birth.parent_ids,
            question=self._archive.question(birth.birth),
            geomean=self._geomeans.get(birth.id),
            gain=gain,
            detail=detail,
        )

    def _detail(self, birth: Birth, room: Room) -> Detail | None:
        evaluation = judged_evaluation(self._archive, birth.id, self._audits)
        question, asked = self._archive.question(birth.birth), self._asked.get(birth.id)
        word = cut(asked.detail) if asked else ""
        words = (word, cut(question.text) if question else "")
        if evaluation is None or not room.take_table(len(evaluation.timings), words):
            return None
        parent = birth.parent_ids[0] if birth.parent_ids else None
        before = judged_evaluation(self._archive, parent, self._audits) if parent else None
        pieces = diff_of(self._source(parent), self._source(birth.id)) if parent else ()
        speedups = before.speedups if before else {}
        return Detail(
            word=word,
            changes=tuple(
                Change(timing=timing, parent_speedup=speedups.get(timing.scenario)) for timing in evaluation.timings
            ),
            noise=noise(evaluation),
            diff=pieces if room.take_texts(piece.text for piece in pieces) else None,
            diff_characters=sum(len(piece.text) for piece in pieces),
        )

    def _gain(self, birth: Birth) -> float | None:
        """As History.gain has it: over the best parent, where both passed."""
        child = self._geomeans.get(birth.id) or 0.0
        parent = max((self._geomeans.get(each) or 0.0 for each in birth.parent_ids), default=0.0)
        return child / parent if child > 0.0 and parent > 0.0 else None

    def _source(self, name: str) -> str:
        return self._archive.individual(name).source


def gains_over_last(tops: Sequence[Measured] | Sequence[Milestone]) -> list[float | None]:
    """By which factor each milestone is better than the one before it; None for the first."""
    geomeans = [each.geomean or 0.0 for each in tops]
    return [None, *(after / before for before, after in pairwise(geomeans))] if tops else []


def _measured(scores: Sequence[Score], births: Mapping[str, Birth]) -> list[Measured]:
    return [
        Measured(
            place=place,
            kernel=score.individual_id,
            birth=births[score.individual_id].birth,
            status=score.status,
            geomean=score.geomean,
        )
        for place, score in enumerate(scores, start=1)
    ]


def _tops(measured: Sequence[Measured]) -> list[Measured]:
    best, tops = 0.0, []
    for each in measured:
        if each.geomean is not None and each.geomean > best:
            best = each.geomean
            tops.append(each)
    return tops


def _milestone(top: Measured, record: Evaluation | None) -> Milestone:
    return Milestone(
        place=top.place, kernel=top.kernel, geomean=top.geomean or 0.0, timings=record.timings if record else ()
    )


def _childless(attempts: Sequence[Attempt]) -> dict[str, int]:
    return dict(Counter(str(each.outcome) for each in attempts if each.outcome is not Outcome.CHILD).most_common())
