"""The tool `measure`: the search's own verdict on a draft."""

from collections.abc import Iterator, Mapping
from typing import Any

from evo.tools.draft_judge import DraftJudge, refusal
from evo.tools.tool import schema
from fitness.evaluation import BuildReport, Evaluation


class Measure:
    """Has a draft judged as the reply will be."""

    name = "measure"
    description = (
        "compile, check and time a draft as the answer will be: its status with the reason, its speedup on every "
        "scenario, registers, spills and the compiler's advisories"
    )
    parameters: Mapping[str, Any] = schema()

    def __init__(self, judge: DraftJudge) -> None:
        self._judge = judge

    def call(self, source: str, _arguments: Mapping[str, Any]) -> str:
        """The verdict. Raises EnvironmentFault."""
        return "\n".join(_verdict(self._judge.measured(source)))


def _verdict(evaluation: Evaluation) -> Iterator[str]:
    worst = evaluation.worst
    if worst is None:
        yield refusal(evaluation)
    else:
        yield f"PASSED: the geometric mean of {len(evaluation.timings)} speedups is {evaluation.geomean:.4f}"
        yield f"worst: {worst.scenario}, {worst.speedup:.3f}"
    for timing in evaluation.timings:
        yield (
            f"{timing.scenario}: {timing.candidate_median_ms:.4f} ms, baseline {timing.baseline_median_ms:.4f} ms, "
            f"speedup {timing.speedup:.3f} ({timing.speedup_low:.3f} to {timing.speedup_high:.3f})"
        )
    for build in evaluation.builds:
        yield from _figures(build)


def _figures(build: BuildReport) -> Iterator[str]:
    for kernel in build.kernels:
        spilled = kernel.spill_store_bytes + kernel.spill_load_bytes
        yield f"{kernel.kernel}, {build.name}: {kernel.registers} registers, {spilled} bytes spilled"
    for advisory in build.advisories:
        yield f"the compiler on {build.name}: {advisory}"
