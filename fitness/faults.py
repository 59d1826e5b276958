"""Who is to blame: the candidate (data, the search goes on) or the environment (an exception, the run stops)."""

from fitness.evaluation import Status


class CandidateFault(Exception):
    """The candidate is at fault. `reason` goes into the next prompt, so it names what came and what was expected."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


def invalid(reason: str) -> CandidateFault:
    """The fault of a source that breaks the contract."""
    return CandidateFault(Status.INVALID, reason)


class EnvironmentFault(Exception):
    """This machine, its set-up or the command line is at fault: no candidate may be blamed for it."""


class BaselineUnavailableError(EnvironmentFault):
    """The named baseline is not installed here, does not run on this device, or cannot compute a scenario."""
