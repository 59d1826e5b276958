"""The tool `profile`: hardware counters of a draft on the scenario where it stands worst beside the baseline."""

from collections.abc import Iterator, Mapping
from typing import Any

from evo.tools.draft_judge import DraftJudge, refusal
from evo.tools.nsight import COUNTERS, KernelCounters, NoCounters, NsightCompute
from evo.tools.profiled_run import Launched
from evo.tools.tool import schema
from fitness.evaluator import Compiled


class Profile:
    """Measures a draft, and profiles one that passes. `device_index` is None where there is no GPU."""

    name = "profile"
    description = (
        "Nsight Compute's main counters (throughputs, pipes, cache hits, stalls) for each kernel of a draft on the "
        "scenario with the least speedup; the draft is measured first, and must pass"
    )
    parameters: Mapping[str, Any] = schema()

    def __init__(self, judge: DraftJudge, *, ncu: NsightCompute | None, device_index: int | None) -> None:
        self._judge = judge
        self._ncu = ncu
        self._device_index = device_index

    def call(self, source: str, _arguments: Mapping[str, Any]) -> str:
        """The counters. Raises EnvironmentFault."""
        if self._device_index is None:
            return "not available: there is no GPU to profile on"
        if self._ncu is None:
            return "not available: ncu, Nsight Compute's command, is not on the PATH"
        evaluation = self._judge.measured(source)
        compiled = self._judge.compiled(source)
        if evaluation.worst is None or not isinstance(compiled, Compiled):
            return f"not profiled, as it does not pass: {refusal(evaluation)}"
        [plan] = [each for each in compiled.plan.scenarios if each.scenario.name == evaluation.worst.scenario]
        [binary] = [each.binary for each in compiled.builds if each.build == plan.build]
        try:
            counters = self._ncu.counters(Launched(plan=plan, binary=binary, device_index=self._device_index))
        except NoCounters as why:
            return f"not available: Nsight Compute gave no counters: {why}"
        return "\n".join((f"on {plan.scenario.name}, cold caches", *_lines(counters)))


def _lines(launches: tuple[KernelCounters, ...]) -> Iterator[str]:
    for launch in launches:
        yield f"{launch.kernel}:"
        for name, words in COUNTERS.items():
            if name in launch.values:
                yield f"- {words}: {launch.values[name]}"
