"""Suspicious wins are audited as they come and the best at the end; what fails is out, and nothing is audited twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from audited_judge import AuditedJudge, failed_check, passed_check, wide
from small_records import attempt, individual, known, passed
from small_search import (
    MACHINE,
    SOURCE,
    KnobJudge,
    assemble,
    every_kernel,
    judge_knobs,
    run_part,
    small_config,
    snapshot,
)

from evo.auditing import Auditing
from evo.auditors import build_auditing
from evo.audits import AUDIT_EVENT, CHAMPION_EVENT, recorded_audits, told
from evo.choices import settle
from evo.config import Config
from evo.history import History
from evo.moments import lineage_history
from fitness.audit_record import Audit, AuditCheck, Finding
from fitness.evaluation import Evaluation, Status
from fitness.sanitizer import TOOLS
from population.archive import Archive, create_archive, open_archive
from population.archive_reader import read_archive
from population.individual import Individual
from population.run_folder import RunFolder, create_run_folder
from questions.question import Moment
from questions.triggers import Thresholds, read_moment


class Listed:
    """Audits by lists: what fails when it is judged, and what fails as the best."""

    def __init__(self, *, refused: tuple[str, ...] = (), dethroned: tuple[str, ...] = ()) -> None:
        self.refused, self.dethroned = refused, dethroned
        self.asked: list[str] = []

    def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
        self.asked.append(source)
        return (failed_check() if source in self.refused else passed_check(),)

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        self.asked.append(f"best: {source}")
        return (failed_check("full182") if source in self.dethroned else passed_check("full182"),)


class Scene:
    """An archive with a seed of 1.0, and children of it as they are judged."""

    def __init__(self, archive: Archive, auditor: Listed | None) -> None:
        self.archive, self.history, self.said = archive, History(), list[str]()
        self.auditing = Auditing(
            auditor=auditor, archive=archive, history=self.history, scenarios=(), gain=1.3, note=self.said.append
        )
        self.seed = self.judged("seed", 1.0)

    def judged(self, name: str, geomean: float, *parents: Individual) -> Individual:
        birth = len(self.history.geomeans()) if parents else -1
        one = known(self.history, individual(name, birth, *parents))
        self.archive.record_individual(one)
        found = self.auditing.judged(one, passed(one.source, {"x": geomean}))
        self.history.add_evaluation(one.id, found)
        return one


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


@pytest.fixture
def archive(folder: RunFolder) -> Iterator[Archive]:
    with create_archive(folder) as made:
        yield made


def test_only_a_suspicious_win_is_audited(archive: Archive) -> None:
    auditor = Listed()
    scene = Scene(archive, auditor)
    scene.judged("usual", 1.2, scene.seed)
    big = scene.judged("big", 1.5, scene.seed)
    assert auditor.asked == ["big\n"]
    assert scene.history.geomean(big.id) == 1.5
    assert recorded_audits(archive)[big.id].why == ("1.50 times its parent's speed",)
    assert scene.said == [
        f"auditing {big.id}: 1.50 times its parent's speed", f"the audit of {big.id}: passed"
    ]  # fmt: skip


def test_a_failed_audit_makes_the_win_wrong(archive: Archive) -> None:
    scene = Scene(archive, Listed(refused=("cheat\n",)))
    cheat = scene.judged("cheat", 5.0, scene.seed)
    found = scene.history.evaluation(cheat.id)
    assert found is not None
    assert (found.status, found.geomean) == (Status.INCORRECT, None)
    assert found.reason == "the audit of this win failed: new inputs: wrong on other inputs"
    assert scene.history.geomean(cheat.id) == 0.0


def test_an_audit_that_the_archive_holds_is_used_and_not_made_again(archive: Archive) -> None:
    Scene(archive, Listed(refused=("cheat\n",))).judged("cheat", 5.0, Scene(archive, None).seed)
    again = Scene(archive, Listed())  # it would pass now
    cheat = again.judged("cheat", 5.0, again.seed)
    assert again.auditing.auditor is not None
    assert again.history.geomean(cheat.id) == 0.0


def test_with_audits_switched_off_one_that_the_archive_holds_still_counts(archive: Archive) -> None:
    Scene(archive, Listed(refused=("cheat\n",))).judged("cheat", 5.0, Scene(archive, None).seed)
    config, history = small_config(), History()
    config.audit = False
    auditing = build_auditing(config, settle(config, MACHINE), KnobJudge(), archive, history, pytest.fail)
    assert auditing.auditor is None
    cheat = known(history, individual("cheat", 1, known(history, individual("seed", -1))))
    history.add_evaluation(cheat.parent_ids[0], passed("seed\n", {"x": 1.0}))
    assert auditing.judged(cheat, passed(cheat.source, {"x": 5.0})).status is Status.INCORRECT


def test_without_anybody_to_audit_a_win_stands_as_it_was_measured(archive: Archive) -> None:
    scene = Scene(archive, None)
    big = scene.judged("big", 4.0, scene.seed)
    assert scene.history.geomean(big.id) == 4.0
    assert scene.auditing.crown() == big.id


def test_the_best_is_audited_at_the_end_and_where_it_fails_the_next(archive: Archive) -> None:
    auditor = Listed(refused=("lucky\n",), dethroned=("narrow\n",))
    scene = Scene(archive, auditor)
    scene.judged("narrow", 1.29, scene.seed)
    scene.judged("lucky", 1.25, scene.seed)
    honest = scene.judged("honest", 1.2, scene.seed)
    assert auditor.asked == []
    assert scene.auditing.crown() == honest.id
    assert auditor.asked == ["narrow\n", "best: narrow\n", "lucky\n", "honest\n", "best: honest\n"]
    assert scene.auditing.crown() == honest.id  # from the archive
    assert len(auditor.asked) == 5
    assert [audit.failed for audit in recorded_audits(archive, CHAMPION_EVENT).values()] == [True, True, False]


def test_what_was_checked_as_a_suspicious_win_is_not_checked_again_at_the_end(archive: Archive) -> None:
    auditor = Listed()
    scene = Scene(archive, auditor)
    big = scene.judged("big", 2.0, scene.seed)
    assert scene.auditing.crown() == big.id
    assert auditor.asked == ["big\n", "best: big\n"]
    audit = recorded_audits(archive)[big.id]
    assert [check.name for check in audit.checks] == ["new inputs", "full182"]
    assert audit.why == ("2.00 times its parent's speed", "the best of its run")


def test_a_win_that_was_audited_is_asked_about_next() -> None:
    history = History()
    seed = known(history, individual("seed", -1), passed("seed", {"x": 1.0}))
    child = known(history, individual("child", 0, seed), passed("child", {"x": 1.1}))
    history.add_attempt(attempt(0, (seed,), child))
    assert read_moment(lineage_history(history, [child]), Thresholds()).moment is not Moment.BIG_WIN
    history.add_audit(child.id, Audit(why=("above the roof",), checks=(passed_check(),)))
    trigger = read_moment(lineage_history(history, [child]), Thresholds())
    assert (trigger.moment, trigger.reason) == (Moment.BIG_WIN, "above the roof")


def test_a_cheat_never_survives_and_the_search_finds_the_best_of_the_rest(folder: RunFolder) -> None:
    judge = AuditedJudge(wide)
    run_part(small_config(generations=6), folder, judge)
    assert any(wide(source) for source in judge.audited)
    seen = snapshot(folder)
    refused = {name for name, audit in audits(folder).items() if audit.failed}
    assert refused
    members = [*seen["checkpoint"]["population"], *seen["checkpoint"]["hall_of_fame"]]
    assert not refused & {member["id"] for member in members}
    assert seen["result"]["best"]["id"] not in refused
    assert seen["result"]["failures"]["INCORRECT"] >= len(refused)
    assert max(seen["result"]["history"]) == seen["result"]["best"]["geomean"]


def test_two_generations_and_two_more_are_four_with_audits_between(tmp_path: Path, folder: RunFolder) -> None:
    whole = create_run_folder(tmp_path, "whole")
    run_part(small_config(generations=4), whole, AuditedJudge(wide))
    run_part(small_config(generations=2), folder, AuditedJudge(wide))
    rest = AuditedJudge(wide)
    run_part(small_config(generations=4), folder, rest)
    assert snapshot(whole) == snapshot(folder)
    assert audits(whole) == audits(folder)
    assert not set(rest.audited) & set(sources_audited_before(folder, 2))


def test_a_generation_cut_off_between_a_measurement_and_its_audit_is_audited_on_resume(
    tmp_path: Path, folder: RunFolder
) -> None:
    class Cut(AuditedJudge):
        def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_part(small_config(), folder, Cut(wide))
    whole = create_run_folder(tmp_path, "whole")
    run_part(small_config(), whole, AuditedJudge(wide))
    run_part(small_config(), folder, AuditedJudge(wide))
    assert snapshot(whole) == snapshot(folder)


def test_a_best_that_failed_at_the_end_is_out_when_the_run_goes_on(folder: RunFolder) -> None:
    judge = AuditedJudge(lambda _: False, wide)
    best = crowned(small_config(generations=2), folder, judge)
    dethroned = {name for name, audit in champions(folder).items() if audit.failed}
    assert dethroned
    assert best not in {None, *dethroned}
    run_part(small_config(generations=4), folder, judge)
    seen = snapshot(folder)
    members = [*seen["checkpoint"]["population"], *seen["checkpoint"]["hall_of_fame"]]
    assert not dethroned & {member["id"] for member in members}
    assert seen["result"]["best"]["id"] not in dethroned


def test_where_every_best_fails_there_is_none(folder: RunFolder) -> None:
    judge = AuditedJudge(lambda _: False, lambda _: True)
    assert crowned(small_config(generations=2), folder, judge) is None
    assert snapshot(folder)["result"]["best"] is None
    assert run_part(small_config(generations=4), folder, judge).reason.startswith("no seed passed")


def test_the_result_says_what_the_audit_of_the_best_came_to(folder: RunFolder) -> None:
    judge = AuditedJudge(lambda _: False)
    best = crowned(small_config(generations=2), folder, judge)
    seen = snapshot(folder)
    assert (seen["result"]["best"]["id"], seen["result"]["best"]["audit"]) == (best, "passed")
    assert len(judge.crowned) == 1


def test_a_best_of_which_a_check_was_skipped_passed_in_part(folder: RunFolder) -> None:
    class WithoutTools(AuditedJudge):
        def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
            skipped = (AuditCheck(name=tool, finding=Finding.SKIPPED, detail="not here") for tool in TOOLS[:2])
            return (*super().audit_champion(source), *skipped)

    best = crowned(small_config(generations=2), folder, WithoutTools(lambda _: False))
    found = snapshot(folder)["result"]["best"]
    assert (found["id"], found["audit"]) == (best, "passed in part")
    assert found["audit_left_out"] == {"memcheck": "skipped: not here", "racecheck": "skipped: not here"}
    made = found["audit_made"]
    assert made == [each.name for each in champions(folder)[best].checks if each.finding is Finding.PASSED]
    expected = f"passed in part ({', '.join(made)}); skipped: memcheck, racecheck (not here)"
    assert len(made) > 0
    assert told(champions(folder)[best]) == expected


def test_what_was_made_comes_before_what_is_not_due() -> None:
    not_due = (AuditCheck(name=tool, finding=Finding.NOT_DUE, detail="there is no GPU here") for tool in TOOLS[:2])
    other = AuditCheck(name="scaling", finding=Finding.NOT_DUE, detail="outside of supports: large: all")
    audit = Audit(why=("x",), checks=(replace(passed_check(), name="new inputs"), *not_due, other))
    assert told(audit) == (
        "passed (new inputs); not due: memcheck, racecheck (there is no GPU here); "
        "not due: scaling (outside of supports: large: all)"
    )
    assert told(Audit(why=("x",), checks=(other,))) == "not run; not due: scaling (outside of supports: large: all)"


def test_a_failed_audit_is_told_by_what_failed() -> None:
    audit = Audit(why=("x",), checks=(passed_check(), failed_check("racecheck")))
    assert told(audit) == "failed: racecheck: wrong on other inputs"


def crowned(config: Config, folder: RunFolder, judge: AuditedJudge) -> str | None:
    with open_archive(folder) if folder.archive.exists() else create_archive(folder) as archive:
        search = assemble(config, folder, archive, judge)
        search.run()
        best: str | None = search.toolbox.crown()
        return best


def champions(folder: RunFolder) -> dict[str, Audit]:
    with read_archive(folder) as archive:
        return recorded_audits(archive, CHAMPION_EVENT)


def audits(folder: RunFolder) -> dict[str, Audit]:
    with read_archive(folder) as archive:
        return recorded_audits(archive, AUDIT_EVENT)


def sources_audited_before(folder: RunFolder, generation: int) -> list[str]:
    with read_archive(folder) as archive:
        found = recorded_audits(archive, AUDIT_EVENT)
        return [each.source for each in archive.individuals() if each.id in found and each.generation <= generation]


def test_there_is_something_to_refuse() -> None:
    assert any(wide(kernel) and judge_knobs(kernel).geomean for kernel in every_kernel())
    assert not wide(SOURCE)
