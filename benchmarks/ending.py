"""How a benchmark ends: what was measured is kept whatever ends it, and what ended it is one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from evo.commands.errors import guarded
from evo.console import open_console
from fitness.faults import CandidateFault, EnvironmentFault


def ended(main: Callable[[], int], errors: Console | None = None) -> int:
    """The benchmark's exit code: 2 after one line for whatever is foreseen, a kernel that fails included."""
    return guarded(lambda: _blaming_no_candidate(main), errors or open_console(stderr=True))


def _blaming_no_candidate(main: Callable[[], int]) -> int:
    try:
        return main()
    except CandidateFault as fault:  # there is no search to go on, and a benchmark is told which kernels to take
        raise EnvironmentFault(f"a kernel of this benchmark fails: {fault}") from fault


@contextmanager
def keeping(tell: Callable[[str], None]) -> Iterator[None]:
    """Have `tell` write down what was measured within, at its end or at what ends it early: "", or that in words."""
    try:
        yield
    except BaseException as cause:
        tell(str(cause) or type(cause).__name__)
        raise
    tell("")
