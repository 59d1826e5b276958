"""Whose fault it is that memory ran out: the machine's, or that of a candidate which asked for much of it."""

from fitness.evaluation import Status
from fitness.examination import Examination, Examined
from fitness.faults import EnvironmentFault
from fitness.measure import Job, Measured
from fitness.out_of_memory import ran_out_of_memory
from fitness.process_limits import ProcessLimits

_LARGE_WORKSPACES = 8 << 30  # bytes in one scenario; an honest kernel's fit many times into that
_RESIDENT_THREADS = 132 * 2048  # of an H200: for the stacks of as many the driver takes memory at a launch


def large_workspaces(limits: ProcessLimits, physical_bytes: int) -> int:
    """The bytes of workspaces in one scenario beyond which a lack of memory is their candidate's own doing.

    Half of what its process may take, or of the machine's memory where that is less. A process without a limit uses a
    GPU, whose memory is apart.
    """
    if limits.memory_bytes is None:
        return _LARGE_WORKSPACES
    return min(_LARGE_WORKSPACES, limits.memory_bytes // 2, physical_bytes // 2)


def out_of_memory(error: Exception, request: object, large: int) -> object:
    """What the worker answers where memory ran out, for a candidate's workspaces or our own; None for any other error.

    An EnvironmentFault, or the record of a candidate whose workspaces and stacks, of more than `large` bytes, left too
    little.
    """
    if not ran_out_of_memory(error):
        return None
    if isinstance(request, Job | Examination) and takes_much(request, large):
        taken = _taken(request) / 2**30
        reason = f"its workspaces of {taken:.3g} GiB leave no memory for checking it"
        if request.stack_bytes:
            reason += f" (with {request.stack_bytes} bytes of stack for each of {_RESIDENT_THREADS} threads)"
        if isinstance(request, Examination):
            return Examined(scaled_ms={}, fault=reason)
        return Measured(status=Status.RUNTIME_ERROR, reason=reason)
    said = " ".join(str(error).split())[:300] or type(error).__name__
    return EnvironmentFault(
        f"no memory for the tensors, the reference or the baseline ({said}): free the device of other processes, or "
        "choose a suite of smaller scenarios"
    )


def takes_much(request: Job | Examination, large: int) -> bool:
    """Whether a candidate's workspaces and stacks, of more than `large` bytes, are why memory ran out."""
    return _taken(request) > large


def _taken(request: Job | Examination) -> int:
    """Bytes of all workspaces of the scenario that has most of them, and of the stacks of a device full of threads."""
    plans = (*request.plan.scenarios, *request.plan.edges)
    workspaces = max((sum(each.size for each in plan.workspaces if each) for plan in plans), default=0)
    return workspaces + request.stack_bytes * _RESIDENT_THREADS
