"""One run a GPU: a run may claim the first that no other holds, so that parallel jobs never time on the same one."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from evo.config import BackendKind, Config
from fitness.faults import EnvironmentFault
from fitness.probe import Machine


@contextmanager
def on_claimed_gpu(config: Config, machine: Machine) -> Iterator[Config]:
    """The configuration with a GPU of its own for `backend.device`, held within; as it is where none is to be claimed.

    Raises EnvironmentFault where other runs hold all that are visible.
    """
    wanted = config.backend.claim and config.backend.kind in (BackendKind.auto, BackendKind.cuda) and machine.gpus
    if not wanted:
        yield config
        return
    index, held = claim_gpu(len(machine.gpus), visible=os.environ.get("CUDA_VISIBLE_DEVICES"), folder=claims_folder())
    with held:
        yield replace(config, backend=replace(config.backend, device=index))


def claim_gpu(count: int, *, visible: str | None, folder: Path) -> tuple[int, IO[str]]:
    """The index of a free GPU among the `count` visible ones, and the file that holds it until it is closed.

    `visible` is CUDA_VISIBLE_DEVICES. The lock is the kernel's, so that a run that was killed holds nothing. It binds
    the runs of one user on one machine that ask for it. Raises EnvironmentFault where all are held.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for index, name in enumerate(_names(count, visible)):
        file = (folder / f"gpu-{name}.lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        return index, file
    raise EnvironmentFault(
        f"backend.claim=true: other runs hold all {count} visible GPUs; wait for one, or launch as many jobs at a time "
        "as there are GPUs (hydra.launcher.n_jobs)"
    )


def claims_folder() -> Path:
    """Where this user's locks lie on this machine."""
    return Path(tempfile.gettempdir()) / f"question-evo-{os.getuid()}"


def _names(count: int, visible: str | None) -> list[str]:
    """What each visible GPU is called whatever else is visible: its entry in CUDA_VISIBLE_DEVICES, else its index."""
    entries = [entry.strip() for entry in visible.split(",")] if visible else []
    named = entries if len(entries) >= count else [str(index) for index in range(count)]
    return [entry.replace("/", "-") for entry in named[:count]]
