"""What an audit found: a frozen record, kept beside the evaluation that it is about."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from fitness.evaluation import Evaluation, Status


class Finding(StrEnum):
    """What came of one check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # it should have been made, and could not; the detail says why
    NOT_DUE = "not due"  # it is not to be made: the kernel does not claim that, or the machine has no GPU


@dataclass(frozen=True, kw_only=True)
class AuditCheck:
    """One check of an audit, with the figures or the reason in words."""

    name: str
    finding: Finding
    detail: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Why a kernel was looked at again, and every check. Raises ValueError without a check."""

    why: tuple[str, ...]  # what made the win suspicious, or that it is the best of its run
    checks: tuple[AuditCheck, ...]

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("audit: no checks; expected at least one, even if it was skipped")

    @property
    def passed(self) -> bool:
        """Whether all that is due was checked, and nothing failed."""
        return self.verdict == "passed"

    @property
    def verdict(self) -> str:
        """`failed`, `passed`, `passed in part` where a check that is due was skipped, `not run` where none was made."""
        findings = {check.finding for check in self.checks}
        if Finding.FAILED in findings:
            return "failed"
        if Finding.PASSED not in findings:
            return "not run"
        return "passed in part" if Finding.SKIPPED in findings else "passed"

    @property
    def made(self) -> tuple[str, ...]:
        """The checks that passed, in the order in which they were made."""
        return tuple(each.name for each in self.checks if each.finding is Finding.PASSED)

    @property
    def left_out(self) -> dict[str, str]:
        """Why each check was not made that was not."""
        unmade = (Finding.SKIPPED, Finding.NOT_DUE)
        return {each.name: f"{each.finding}: {each.detail}" for each in self.checks if each.finding in unmade}

    @property
    def failed(self) -> bool:
        """Whether a check failed. An audit of which every check was skipped neither passed nor failed."""
        return any(check.finding is Finding.FAILED for check in self.checks)

    @property
    def reason(self) -> str:
        """The failed checks in words; "" where none failed."""
        return "; ".join(f"{each.name}: {each.detail}" for each in self.checks if each.finding is Finding.FAILED)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types with the verdict written out; `from_json` takes them back."""
        return {**asdict(self), "passed": self.passed, "verdict": self.verdict, "reason": self.reason}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Audit":
        """The audit that `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        checks = tuple(AuditCheck(**{**each, "finding": Finding(each["finding"])}) for each in record["checks"])
        return cls(why=tuple(record["why"]), checks=checks)


def after_audit(evaluation: Evaluation, audit: Audit | None) -> Evaluation:
    """What an evaluation is worth after an audit: wrong, without times and with the reason, where a win failed it."""
    if audit is None or not audit.failed or evaluation.geomean is None:
        return evaluation
    return replace(
        evaluation, status=Status.INCORRECT, reason=f"the audit of this win failed: {audit.reason}",
        timings=(), geomean=None, geomean_low=None, geomean_high=None,
    )  # fmt: skip
