"""Which baseline a configured name means. Never silently another one."""

import logging

from fitness.backends.backend import Baseline
from fitness.baselines.best import BestBaseline
from fitness.baselines.cudnn import CudnnBaseline
from fitness.baselines.fa3 import Fa3Baseline
from fitness.baselines.fa4 import Fa4Baseline
from fitness.baselines.sdpa import SdpaBaseline
from fitness.faults import BaselineUnavailableError
from fitness.scenario import Suite

logger = logging.getLogger(__name__)

MEMBERS = ("fa3", "fa4", "cudnn", "sdpa")
NAMES = ("best", *MEMBERS)


def build_baseline(name: str) -> Baseline:
    """The baseline of that name. Raises BaselineUnavailableError where there is none, or it is not installed."""
    match name:
        case "best":
            return BestBaseline(_present())
        case "fa3":
            return Fa3Baseline()
        case "fa4":
            return Fa4Baseline()
        case "cudnn":
            return CudnnBaseline()
        case "sdpa":
            return SdpaBaseline()
        case _:
            raise BaselineUnavailableError(f"no baseline is called {name!r}; there are: {', '.join(NAMES)}")


def _present() -> list[Baseline]:
    """Those that are installed here and run on this device; torch's own is always among them."""
    found = []
    for name in MEMBERS:
        try:
            found.append(build_baseline(name))
        except BaselineUnavailableError as error:
            logger.info("left out of best: %s", error)
    return found


def check_baseline(baseline: Baseline, suite: Suite) -> None:
    """Raise BaselineUnavailableError, naming every timed scenario that the baseline cannot compute, if there is one."""
    reasons = {scenario.name: baseline.cannot(scenario) for scenario in suite.scenarios}
    refused = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    if refused:
        raise BaselineUnavailableError(
            f"the baseline {baseline.name} cannot compute {len(refused)} of the {len(reasons)} scenarios of "
            f"{suite.name}: {'; '.join(refused)}. Choose another baseline, or a suite without them"
        )
