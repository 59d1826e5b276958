"""Whose fault it is that memory ran out in our own work: the machine's, or a candidate's with boundless workspaces."""

from fitness.evaluation import Status
from fitness.examination import Examination, Examined
from fitness.faults import EnvironmentFault
from fitness.measure import Job, Measured
from fitness.out_of_memory import ran_out_of_memory
from fitness.scenario import Suite

LARGE_WORKSPACES = 8 << 30  # bytes in one scenario; an honest kernel's fit many times into that


def out_of_memory(error: Exception, request: Job | Examination | Suite) -> object:
    """What the worker answers where memory ran out while it was not the candidate that ran; None for any other error.

    An EnvironmentFault, or the record of a candidate whose workspaces left too little.
    """
    if not ran_out_of_memory(error):
        return None
    if not isinstance(request, Suite) and takes_much(request):
        taken = _largest_workspaces(request) / 2**30
        reason = f"its workspaces of {taken:.0f} GiB leave no memory for checking it"
        if isinstance(request, Examination):
            return Examined(scaled_ms={}, fault=reason)
        return Measured(status=Status.RUNTIME_ERROR, reason=reason)
    said = " ".join(str(error).split())[:300] or type(error).__name__
    return EnvironmentFault(
        f"no memory for the reference or the baseline ({said}): free the device of other processes, or choose a suite "
        "of smaller scenarios"
    )


def takes_much(request: Job | Examination) -> bool:
    """Whether a candidate's workspaces are so large that a lack of memory is its own doing."""
    return _largest_workspaces(request) > LARGE_WORKSPACES


def _largest_workspaces(request: Job | Examination) -> int:
    """Bytes of all workspaces of the scenario that has most of them."""
    plans = (*request.plan.scenarios, *request.plan.edges)
    return max((sum(each.size for each in plan.workspaces if each) for plan in plans), default=0)
