"""Who is to blame: the candidate (data, the search goes on) or the environment (an exception, the run stops)."""

from fitness.evaluation import Status
from fitness.shown_text import shown_text


class CandidateFault(Exception):
    """The candidate is at fault. `reason` goes into the next prompt, so it names what came and what was expected.

    It may quote the candidate, whose text is not to steer a terminal or fill a record: see `shown_text`.
    """

    def __init__(self, status: Status, reason: str) -> None:
        self.status = status
        self.reason = shown_text(reason)
        super().__init__(f"{status}: {self.reason}")


def invalid(reason: str) -> CandidateFault:
    """The fault of a source that breaks the contract."""
    return CandidateFault(Status.INVALID, reason)


class EnvironmentFault(Exception):
    """This machine, its set-up or the command line is at fault: no candidate may be blamed for it."""


class DoubtfulFault(EnvironmentFault):
    """It came once a candidate had run in the process, and may be its doing.

    A second one of the same candidate is held against it, where a worker started well in between.
    """


class BaselineUnavailableError(EnvironmentFault):
    """The named baseline is not installed here, does not run on this device, or cannot compute a scenario."""
