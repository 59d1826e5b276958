"""The end of a search: its best is audited, and a search that cannot have that done has not come to its end."""

from collections.abc import Callable

from evo.stop import Interrupted, StopSearch, Unaudited
from fitness.faults import EnvironmentFault


def crown_best(crown: Callable[[], object], stop: StopSearch) -> StopSearch:
    """Why the search stopped, once `crown` has audited its best; Unaudited where a fault or a signal came between.

    A search that was interrupted before is left as it is: it has no best yet.
    """
    if stop.exit_code is not None:
        return stop
    try:
        crown()
    except EnvironmentFault as fault:
        return Unaudited(stop, str(fault), exit_code=2)
    except Interrupted as interruption:
        return Unaudited(stop, interruption.reason, exit_code=interruption.exit_code)
    return stop
