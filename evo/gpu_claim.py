"""Who measures on which GPU of this machine: a lock a GPU, so that a run may have one alone, and hears of others.

A lock goes by the GPU's UUID, whatever else is visible and in which order. It is the kernel's, so that a run that was
killed holds nothing; and it binds the runs of one user that share a temporary folder.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from evo.config import BackendKind, Config
from evo.pool_config import PoolKind
from fitness.faults import EnvironmentFault
from fitness.probe import Gpu, Machine

_SHARED = (
    "note: GPU {indices}: another run measures there too, and each disturbs the other's times; give every run a GPU "
    "of its own, as by backend.claim=true, backend.device=N or pool.devices=[N]"
)
_ALONE_ANYHOW = ("basic", "submitit_slurm")  # launchers: one job at a time, or GPUs that SLURM gives to a job


@dataclass(frozen=True, kw_only=True)
class GpuLocks:
    """The locks in a folder. Whoever measures on a GPU shares its lock; one that nobody holds is free."""

    folder: Path

    def claim(self, gpus: Sequence[Gpu]) -> tuple[Gpu, IO[str]]:
        """The first free GPU, and the file that holds it until it is closed.

        Raises EnvironmentFault where there is none, OSError where the folder cannot be used.
        """
        with self._alone():
            for gpu in gpus:
                file, free = self._share(gpu)
                if free:
                    return gpu, file
                file.close()
        raise EnvironmentFault(
            f"backend.claim: other runs hold all {len(gpus)} visible GPUs; wait for one, or launch as many jobs at a "
            "time as there are GPUs (hydra.launcher.n_jobs)"
        )

    def hold(self, gpus: Sequence[Gpu]) -> tuple[list[Gpu], list[IO[str]]]:
        """Those of the GPUs that others hold as well, and the files that hold all of them until they are closed.

        Raises OSError where the folder cannot be used.
        """
        with self._alone():
            held = [(gpu, *self._share(gpu)) for gpu in gpus]
        return [gpu for gpu, _, free in held if not free], [file for _, file, _ in held]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within it no other process looks at the locks or takes one."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "gate.lock").open("a", encoding="utf-8") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    def _share(self, gpu: Gpu) -> tuple[IO[str], bool]:
        """The file that now holds a GPU, and whether it was free. Called alone: no other lock is ever exclusive."""
        file = (self.folder / f"gpu-{gpu.uuid or gpu.index}.lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        fcntl.flock(file, fcntl.LOCK_SH)
        return file, free


@contextmanager
def on_held_gpus(
    config: Config, machine: Machine, note: Callable[[str], None], locks: GpuLocks | None = None
) -> Iterator[Config]:
    """The configuration, with a free GPU for `backend.device` where one is claimed; its GPUs are held within.

    `note` hears a line where other runs measure on them too. Raises EnvironmentFault where one is claimed and other
    runs hold all that are visible.
    """
    gpus, locks = gpus_of(config, machine), locks or GpuLocks(folder=locks_folder())
    with ExitStack() as stack:
        try:
            if gpus and config.backend.claim:
                gpu, file = locks.claim(gpus)
                stack.enter_context(file)
                config = replace(config, backend=replace(config.backend, device=gpu.index))
            elif gpus:
                shared, files = locks.hold(gpus)
                for each in files:
                    stack.enter_context(each)
                if shared:
                    note(_SHARED.format(indices=", ".join(str(gpu.index) for gpu in shared)))
        except OSError as error:
            _without_locks(config, error, note)
        yield config


def gpus_of(config: Config, machine: Machine) -> list[Gpu]:
    """The GPUs of this machine on which the run measures or, where it claims one, may measure."""
    if config.backend.kind not in (BackendKind.auto, BackendKind.cuda) or config.pool.kind is not PoolKind.local:
        return []
    if config.backend.claim:
        return list(machine.gpus)
    named = config.pool.devices if config.backend.device is None else [config.backend.device]
    return [gpu for gpu in machine.gpus if named is None or gpu.index in named]


def beside_others(config: Config, launcher: str) -> Config:
    """The configuration of a sweep's job, which claims a GPU where others run beside it, unless its words say more."""
    backend, pool = config.backend, config.pool
    says = backend.claim is not None or backend.device is not None or pool.devices is not None
    if says or launcher in _ALONE_ANYHOW or pool.kind is not PoolKind.local:
        return config
    return replace(config, backend=replace(backend, claim=True))


def locks_folder() -> Path:
    """Where this user's locks lie on this machine."""
    return Path(tempfile.gettempdir()) / f"question-evo-{os.getuid()}"


def _without_locks(config: Config, error: OSError, note: Callable[[str], None]) -> None:
    """Raise EnvironmentFault where a GPU is claimed; what claims none can do without locks."""
    if config.backend.claim:
        raise EnvironmentFault(f"backend.claim: no lock can be had ({error}); name a GPU, as in backend.device=0")
    note(f"note: whether other runs measure on the same GPUs cannot be told ({error})")
