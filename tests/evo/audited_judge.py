"""A deterministic judge that can audit too: what it holds against a kernel is a pure function of the kernel."""

from collections.abc import Callable

from small_search import KnobJudge

from fitness.audit_record import AuditCheck, Finding
from fitness.evaluation import Evaluation
from fitness.manifest import read_manifest


def passed_check(name: str = "new inputs") -> AuditCheck:
    return AuditCheck(name=name, finding=Finding.PASSED, detail="right again")


def failed_check(name: str = "new inputs") -> AuditCheck:
    return AuditCheck(name=name, finding=Finding.FAILED, detail="wrong on other inputs")


class AuditedJudge(KnobJudge):
    """`refuses(source)` says which kernels fail an audit; `audited` and `crowned` hold what was asked for."""

    def __init__(self, refuses: Callable[[str], bool], refuses_best: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__()
        self._refuses = refuses
        self._refuses_best = refuses_best
        self.audited: list[str] = []
        self.crowned: list[str] = []

    def audit(self, source: str, evaluation: Evaluation) -> tuple[AuditCheck, ...]:
        assert evaluation.geomean is not None
        self.audited.append(source)
        return (failed_check() if self._refuses(source) else passed_check(),)

    def audit_champion(self, source: str) -> tuple[AuditCheck, ...]:
        self.crowned.append(source)
        return (failed_check("full182") if self._refuses_best(source) else passed_check("full182"),)


def wide(source: str) -> bool:
    """Whether a kernel's WIDTH is its greatest, which is what makes one of `small_search` fast."""
    [knob] = [knob for knob in read_manifest(source).knobs if knob.name == "WIDTH"]
    return knob.value == max(knob.choices)
