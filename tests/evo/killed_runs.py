"""Runs a small search again and again, each time killed by SIGKILL at another moment. A program of its own.

usage: killed_runs.py ROOT NUMBER [RNG_SEED]

Under ROOT it leaves `whole`, a run that nothing disturbed, and `killed-N` for each N-th moment at which a run was
killed: NUMBER of them, spread evenly over the run, or with an RNG_SEED, which is the run's too, drawn at random; and
one of each kind of moment. It prints a JSON object with the kinds, by N. Each killed run is a fork of this process,
which imports everything once.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_search import KnobJudge, assemble, small_config

from evo.config import Config
from fitness.evaluation import Evaluation
from population.archive import Archive, create_archive
from population.run_folder import RunFolder, create_run_folder


class Death:
    """Kills the process at the n-th moment that it hears of; at none where `at` is None."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.moments: list[str] = []

    def passes(self, moment: str) -> None:
        if len(self.moments) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.moments.append(moment)


Run = Callable[[RunFolder, Death, int], None]


class MortalArchive:
    """An archive with a moment before and after everything that it records, and within its transactions."""

    def __init__(self, archive: Archive, death: Death) -> None:
        self._archive = archive
        self._death = death

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._archive, name)
        if not name.startswith("record_"):
            return method

        def recording(*arguments: object) -> None:
            self._death.passes(f"before {name}")
            method(*arguments)
            self._death.passes(f"after {name}")

        return recording

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._archive.transaction():
            self._death.passes("in a transaction that holds nothing")
            yield
            self._death.passes("in a transaction, before its end")
        self._death.passes("after a transaction")


class MortalJudge(KnobJudge):
    """A judge with a moment after each evaluation, before anybody hears of it."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self._death = death

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        def heard(place: int, evaluation: Evaluation) -> None:
            self._death.passes("after an evaluation")
            if on_done is not None:
                on_done(place, evaluation)

        return super().evaluate_all(sources, heard)


def mortal_path(path: Path, death: Death) -> Path:
    """The path, with a moment whenever the system is about to be given it: a file opened, the source of a renaming
    and its target, a folder synced.
    """

    class MortalPath(type(path)):  # type: ignore[misc]
        def __fspath__(self) -> str:
            death.passes(f"a checkpoint's path, {self.suffix or 'the folder'}")
            return str(super().__fspath__())

    mortal: Path = MortalPath(path)
    return mortal


class MortalFolder(RunFolder):
    """A run whose checkpoints are kept under a mortal path."""

    def __init__(self, folder: RunFolder, death: Death) -> None:
        super().__init__(folder.path)
        object.__setattr__(self, "_death", death)

    @property
    def checkpoints(self) -> Path:
        death: Death = self.__dict__["_death"]
        return mortal_path(super().checkpoints, death)


def mortal_config(rng_seed: int) -> Config:
    return replace(small_config(generations=3, lambda_=3), rng_seed=rng_seed)


def run_mortal(folder: RunFolder, death: Death, rng_seed: int) -> None:
    random.seed("whatever the process did before")
    with create_archive(folder) as archive:
        mortal: Any = MortalArchive(archive, death)
        assemble(mortal_config(rng_seed), MortalFolder(folder, death), mortal, MortalJudge(death)).run()


def evenly(moments: Sequence[str], number: int) -> list[int]:
    """Moments spread over the run."""
    return [round(step * (len(moments) - 1) / (number - 1)) for step in range(number)]


def with_each_kind(moments: Sequence[str], spread: Sequence[int]) -> list[int]:
    """These moments, and of each kind the one in the middle."""
    by_kind = [[at for at, moment in enumerate(moments) if moment == kind] for kind in dict.fromkeys(moments)]
    return sorted({*spread, *(of_kind[len(of_kind) // 2] for of_kind in by_kind)})


def killed_at(moment: int, root: Path, rng_seed: int, run: Run) -> bool:
    """Whether a run that was to die at a moment did."""
    child = os.fork()
    if child == 0:
        run(create_run_folder(root, f"killed-{moment}"), Death(at=moment), rng_seed)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def main(root: Path, number: int, rng_seed: int | None, run: Run = run_mortal) -> None:
    life, of_run = Death(), rng_seed or 0
    run(create_run_folder(root, "whole"), life, of_run)
    if rng_seed is None:
        spread = evenly(life.moments, number)
    else:
        spread = random.Random(rng_seed).sample(range(len(life.moments)), min(number, len(life.moments)))
    moments = with_each_kind(life.moments, spread)
    killed = {moment: life.moments[moment] for moment in moments if killed_at(moment, root, of_run, run)}
    json.dump(killed, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
