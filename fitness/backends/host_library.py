"""A host build in this process: loaded once for each processor thread, called launch by launch, unloaded after use."""

import _ctypes
import ctypes
import shutil
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.plan import LaunchPlan

Launch = Callable[[bool], None]  # takes whether threads and blocks run backwards


class HostLibrary:
    """A build's shared object. Its state is static, so that each processor thread runs a copy of its own.

    Raises CandidateFault where it cannot be loaded.
    """

    def __init__(self, binary: Path, threads: int) -> None:
        self._copies = [_load(binary), *(_load_copy(binary) for _ in range(threads - 1))]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def launcher(self, plan: LaunchPlan, parameters: bytes) -> Launch:
        """A call that makes the launch, with `parameters` as its AttentionParams, and waits for its end.

        It raises CandidateFault where the launch fails.
        """
        shares = [self._share(number, plan, parameters) for number in range(len(self._copies))]

        def launch(backwards: bool) -> None:
            if self._pool is None:
                reasons = [shares[0](backwards)]
            else:
                reasons = list(self._pool.map(lambda share: share(backwards), shares))
            for reason in filter(None, reasons):
                raise CandidateFault(Status.RUNTIME_ERROR, f"{plan.kernel}: {reason}")

        return launch

    def forget(self) -> None:
        """Leave nothing of earlier launches on the stacks of the candidate's threads."""
        for copy in self._copies:
            copy.evo_forget()

    def _share(self, number: int, plan: LaunchPlan, parameters: bytes) -> Callable[[bool], str]:
        """The blocks that one processor thread runs; gives why they failed, "" where they did not."""
        entry = self._copies[number][f"evo_run_{plan.kernel}"]
        entry.restype = ctypes.c_char_p
        triple = ctypes.c_uint * 3
        grid, block = triple(*plan.grid), triple(*plan.block)
        shared, first, step = (ctypes.c_uint(n) for n in (plan.shared_bytes, number, len(self._copies)))

        def run(backwards: bool) -> str:
            reason: bytes | None = entry(parameters, grid, block, shared, ctypes.c_int(backwards), first, step)
            return "" if reason is None else reason.decode(errors="replace")

        return run


def _load(binary: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(binary))
    except OSError as error:
        raise CandidateFault(Status.RUNTIME_ERROR, f"the build cannot be loaded: {error}") from error
    weakref.finalize(library, _ctypes.dlclose, library._handle)
    return library


def _load_copy(binary: Path) -> ctypes.CDLL:
    """The loader knows a file by its path and inode: only a copy is loaded a second time.

    Raises EnvironmentFault where it finds no room.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="evo-host-") as folder:
            return _load(Path(shutil.copy(binary, folder)))
    except OSError as error:
        where = "the folder for temporary files (TMPDIR)"
        raise EnvironmentFault(f"no copy of a build fits into {where}: {error}") from error
