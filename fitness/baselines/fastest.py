"""A baseline at the setting that serves it best, scenario by scenario: beating a poor setting proves nothing."""

import statistics
from dataclasses import dataclass

from fitness.backends.backend import Backend, Baseline, BaselineReplay, Replay, Tensors
from fitness.scenario import Scenario
from fitness.watch import Watch

TRIALS = 5  # calls of each setting, to choose among several


@dataclass(frozen=True, kw_only=True)
class FastestCall:
    """A baseline's best way of computing a scenario."""

    setting: str
    replay: BaselineReplay


class FastestSetting:
    """A baseline with the setting that was fastest on each scenario so far.

    It is found by a few calls of each, once in a process: neither the device nor the baseline changes while it lives.
    """

    def __init__(self, baseline: Baseline, backend: Backend) -> None:
        self.baseline = baseline
        self._backend = backend
        self._found: dict[Scenario, str] = {}

    def call(self, tensors: Tensors, scenario: Scenario, watch: Watch) -> FastestCall:
        """The call on these tensors, made ready."""
        calls = self.baseline.calls(tensors, scenario)
        settings = [self._found[scenario]] if scenario in self._found else list(calls)
        ready = []
        for setting in settings:
            watch.harness(f"preparing the baseline ({setting}) for {scenario.name}")
            ready.append(FastestCall(setting=setting, replay=self._backend.capture(calls[setting])))
        best = ready[0] if len(ready) == 1 else min(ready, key=lambda each: self._trial_ms(each.replay))
        self._found[scenario] = best.setting
        return best

    def _trial_ms(self, replay: Replay) -> float:
        times = []
        for _ in range(TRIALS):
            self._backend.flush_cache()
            times.append(replay.time_ms())
        return statistics.median(times)
