"""The fastest, scenario by scenario, of several baselines: no candidate wins because its rival was chosen poorly."""

from collections.abc import Callable, Mapping, Sequence

import torch

from fitness.backends.backend import Baseline, Tensors
from fitness.scenario import Scenario

_ONLY_SETTING = "default"  # what a baseline with one way of computing calls it


class BestBaseline:
    """All ways of all its members. Timing takes the fastest and records which it was: "cudnn", "fa3 num_splits=0".

    A member that cannot compute a scenario is left out there. Raises ValueError without members.
    """

    def __init__(self, members: Sequence[Baseline]) -> None:
        if not members:
            raise ValueError("baseline best: no members; expected at least one")
        self._members = tuple(members)

    @property
    def name(self) -> str:
        """The configured name."""
        return "best"

    @property
    def version(self) -> str:
        """Every member with its own version: another set of them is another baseline."""
        return "; ".join(f"{member.name}: {member.version}" for member in self._members)

    def cannot(self, scenario: Scenario) -> str:
        """Why no member can compute it; "" where one can."""
        reasons = {member.name: member.cannot(scenario) for member in self._members}
        return "" if "" in reasons.values() else "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def calls(self, tensors: Tensors, scenario: Scenario) -> Mapping[str, Callable[[], torch.Tensor]]:
        """The calls of each member that can, by its name and setting."""
        return {
            member.name if setting == _ONLY_SETTING else f"{member.name} {setting}": call
            for member in self._members
            if not member.cannot(scenario)
            for setting, call in member.calls(tensors, scenario).items()
        }
