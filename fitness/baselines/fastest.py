"""A baseline at the setting that serves it best, scenario by scenario: beating a poor setting proves nothing.

And beating a wrong one proves less: a setting's output passes the gate that candidates pass, or it is left out.
"""

import logging
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fitness.backends.backend import Backend, Baseline, BaselineReplay, Replay, Tensors
from fitness.faults import EnvironmentFault
from fitness.gate import Case, judge
from fitness.inputs import Distribution
from fitness.out_of_memory import ran_out_of_memory
from fitness.reference import Reference, compute_reference
from fitness.scenario import Scenario
from fitness.watch import Watch

TRIALS = 5  # calls of each setting, to choose among several

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FastestCall:
    """A baseline's best way of computing a scenario."""

    setting: str
    replay: BaselineReplay


class FastestSetting:
    """A baseline with the setting that was fastest on each scenario so far, of those that are right there.

    It is found by a few calls of each, once in a process: neither the device nor the baseline changes while it lives.
    """

    def __init__(self, baseline: Baseline, backend: Backend) -> None:
        self.baseline = baseline
        self._backend = backend
        self._found: dict[Scenario, str] = {}

    def call(self, tensors: Tensors, scenario: Scenario, watch: Watch) -> FastestCall:
        """The call on these tensors, made ready; their q, k and v hold inputs.

        Raises EnvironmentFault where no setting can be made ready and gives a right output.
        """
        calls = self.baseline.calls(tensors, scenario)
        if scenario not in self._found:
            best = self._find(calls, tensors, scenario, watch)
            self._found[scenario] = best.setting
            return best
        setting = self._found[scenario]
        watch.harness(f"preparing the baseline ({setting}) for {scenario.name}")
        return FastestCall(setting=setting, replay=self._backend.capture(calls[setting]))

    def _find(
        self, calls: Mapping[str, Callable[[], torch.Tensor]], tensors: Tensors, scenario: Scenario, watch: Watch
    ) -> FastestCall:
        watch.harness(f"computing what the baseline should give on {scenario.name}")
        reference = compute_reference(tensors.q, tensors.k, tensors.v, scenario)
        right, refused = list[FastestCall](), dict[str, str]()
        for setting, call in calls.items():
            watch.harness(f"preparing the baseline ({setting}) for {scenario.name}")
            ready = self._ready(setting, call, reference, scenario)
            if isinstance(ready, FastestCall):
                right.append(ready)
            else:
                refused[setting] = ready
        if not right:
            reasons = "; ".join(f"{setting}: {reason}" for setting, reason in refused.items())
            raise EnvironmentFault(
                f"the baseline {self.baseline.name} computes {scenario.name} at no setting ({reasons}): it is broken "
                "here, or does not suit the scenario"
            )
        for setting, reason in refused.items():
            _logger.warning("baseline setting %s is left out on %s: %s", setting, scenario.name, reason)
        return right[0] if len(right) == 1 else min(right, key=lambda each: self._trial_ms(each.replay))

    def _ready(
        self, setting: str, call: Callable[[], torch.Tensor], reference: Reference, scenario: Scenario
    ) -> FastestCall | str:
        """The setting's call, or why it is refused. Raises EnvironmentFault where it breaks the device."""
        try:
            replay = self._backend.capture(call)
            replay.run()
            return _fault(replay.output, reference, scenario) or FastestCall(setting=setting, replay=replay)
        except Exception as error:  # others' code: another setting may do, and where none does we say why
            if ran_out_of_memory(error):
                raise  # that is no word on the setting
            if isinstance(error, torch.AcceleratorError):  # every later call on this device fails too
                broken = f"the baseline ({setting}) broke the device on {scenario.name}: {error}"
                raise EnvironmentFault(broken) from error
            return f"{type(error).__name__}: {error}"

    def _trial_ms(self, replay: Replay) -> float:
        times = []
        for _ in range(TRIALS):
            self._backend.flush_cache()
            times.append(replay.time_ms())
        return statistics.median(times)


def _fault(o: torch.Tensor, reference: Reference, scenario: Scenario) -> str:
    """What the gate says against a baseline's output; "" where nothing. A baseline is not asked for lse."""
    case = Case(scenario=scenario.name, distribution=Distribution.NORMAL, stage="baseline", input_seed=0)
    check = judge(o, reference.lse, reference, case)
    return "" if check.passed else check.reason
