"""How small a fault the gate still catches, by kind of fault and length, and by which of its bounds.

Faults are put into an honest computation (`faulty_attention.py`). Beside each stands by how much it raises the relative
RMS error of the output over the honest one's on the same inputs: what more than doubles it must be caught.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.faulty_attention import Fault, attend, faults
from benchmarks.record import argument_parser, print_table, write_record
from fitness.evaluation import ScenarioCheck
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.probe import look_around
from fitness.reference import compute_reference
from fitness.scenario import Scenario

HEADS = 2
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MUST_CATCH = 2.0  # times the honest relative RMS error
BOUNDS = {
    "max_error": "max_error_bound", "relative_rms_error": "relative_rms_bound", "mean_error": "mean_error_bound",
    "row_error": "row_error_bound", "lse_max_error": "lse_max_bound",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the gate said of one fault on one set of inputs."""

    fault: Fault
    scenario: Scenario
    distribution: Distribution
    times_honest: float | None  # relative RMS error over the honest one's; None where it is not finite
    caught_by: tuple[str, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Which fault it is, and on which shape."""
        return self.fault.family, self.fault.strength, self.scenario.name


def main() -> None:
    """Run, print, write."""
    parser = argument_parser(__doc__, "gate-tightness.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--head-dim", type=int, default=128)
    arguments = parser.parse_args()
    start, findings = time.monotonic(), []
    for scenario in scenarios(arguments.longest, arguments.head_dim):
        findings += list(sweep(scenario, arguments.device))
    rows = list(_table(findings))
    print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    missed = missed_faults(findings)
    print(f"{len(findings)} outputs; faults of more than {MUST_CATCH:g} times the honest error that pass: {missed}")
    honest = [finding for finding in findings if finding.fault.family == "none"]
    refused = [_named(finding) for finding in honest if finding.caught_by]
    figures = {
        "heads": HEADS, "head_dim": arguments.head_dim, "computed_on": arguments.device, "outputs": len(findings),
        "missed": missed, "honest_refused": refused, "seconds": time.monotonic() - start, "rows": rows,
    }  # fmt: skip
    write_record(arguments.out, look_around(), figures, {})


def scenarios(longest: int, head_dim: int) -> Iterator[Scenario]:
    """Both masks at every length up to the longest."""
    for length in LENGTHS:
        for causal in (False, True) if length <= longest else ():
            yield Scenario(
                batch=1, heads=HEADS, kv_heads=HEADS, seqlen_q=length, seqlen_k=length, head_dim=head_dim,
                causal=causal,
            )  # fmt: skip


def sweep(scenario: Scenario, device: str) -> Iterator[Finding]:
    """Every fault on every distribution on which whole outputs of this length are judged; the honest one first."""
    shape = (1, scenario.seqlen_q, HEADS, scenario.head_dim)
    q, k, v = (torch.empty(shape, dtype=torch.bfloat16, device=device) for _ in range(3))
    for distribution in JudgeSettings().judged_whole(scenario.seqlen_k):
        draw_inputs(distribution, 1, q, k, v)
        reference = compute_reference(q, k, v, scenario)
        case = Case(scenario=scenario.name, distribution=distribution, stage="tightness", input_seed=1)
        honest = judge(*attend(q, k, v, scenario, Fault()), reference, case)
        if honest.relative_rms_error is None:
            raise RuntimeError(f"the honest computation gives no finite result: {honest.reason}")
        for fault in (Fault(), *faults(scenario.seqlen_k, causal=scenario.causal)):
            check = judge(*attend(q, k, v, scenario, fault), reference, case)
            error = check.relative_rms_error
            times = None if error is None else error / honest.relative_rms_error
            yield Finding(
                fault=fault, scenario=scenario, distribution=distribution, times_honest=times,
                caught_by=_broken(check),
            )  # fmt: skip


def missed_faults(findings: Sequence[Finding]) -> list[str]:
    """The worst finding of each fault that no distribution shows at its length, and that should be shown."""
    shown = {each.place for each in findings if each.caught_by}
    hidden: dict[tuple[str, ...], Finding] = {}
    for each in findings:
        place = each.place
        if place not in shown and _times(each) > max(MUST_CATCH, _times(hidden[place]) if place in hidden else 0.0):
            hidden[place] = each
    return [_named(each) for each in hidden.values()]


def _times(finding: Finding) -> float:
    return math.inf if finding.times_honest is None else finding.times_honest


def _broken(check: ScenarioCheck) -> tuple[str, ...]:
    """The bounds that an output broke."""
    pairs = ((name, getattr(check, name), getattr(check, bound)) for name, bound in BOUNDS.items())
    broken = tuple(name for name, error, bound in pairs if error is None or error > bound)
    return broken or (() if check.passed else ("blind rows",))


def _table(findings: Sequence[Finding]) -> Iterator[dict[str, object]]:
    """By family and scenario: the weakest fault caught on normal inputs, and the worst that no distribution shows."""
    places = dict.fromkeys((finding.fault.family, finding.scenario) for finding in findings)
    for family, scenario in places:
        here = [each for each in findings if (each.fault.family, each.scenario) == (family, scenario)]
        normal = [each for each in here if each.distribution is Distribution.NORMAL]
        caught = [each for each in normal if each.caught_by]
        first = caught[0] if caught else None
        shown = {each.fault.strength for each in here if each.caught_by}
        unseen = [_times(each) for each in normal if each.fault.strength not in shown]
        yield {
            "fault": family,
            "length": scenario.seqlen_k,
            "mask": "causal" if scenario.causal else "full",
            "weakest caught": first.fault.strength if first else None,
            "times honest": first.times_honest if first else None,
            "caught by": ", ".join(first.caught_by) if first else None,
            "most times honest uncaught": max(unseen, default=None),
        }


def _named(finding: Finding) -> str:
    fault = finding.fault
    times = "not finite" if finding.times_honest is None else f"{finding.times_honest:.2f}"
    return f"{fault.family} {fault.strength}, {finding.scenario.name}, {finding.distribution}: {times}"


if __name__ == "__main__":
    main()
