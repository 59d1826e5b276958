"""Cuts off the steps of a search by files by SIGKILL, and repeats what was cut off. A program of its own.

usage: cut_steps.py ROOT

A small campaign is made step by step. Each step is made again from where the campaign stood, killed at another moment
each time, and then repeated; what that leaves behind is compared with what the undisturbed step left. One moment of
each kind is taken in each step. It prints a JSON object: the number of cuts, the kinds of moments, and where there was
a difference.
"""

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from by_files import ByFiles, left_behind
from killed_runs import Death, MortalArchive
from rich.console import Console
from small_search import SOURCE, judge_knobs, small_bank, small_config

from evo.added_kernels import AddedKernel, add_kernel
from evo.answerers.mailbox import read_inbox
from evo.config import AnswererConfig, AnswererKind, Config
from evo.console import RunConsole
from evo.mailbox_search import MailboxSearch
from evo.measured import MeasuredFiles, write_measured
from evo.pending import pending_sources, read_job
from population.archive import create_archive, open_archive
from population.run_folder import RunFolder

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGING = ("os.rename", "os.remove", "os.mkdir", "sqlite3.connect")


def config() -> Config:
    made = small_config(generations=None, mu=2, lambda_=2)
    made.answerer = AnswererConfig(kind=AnswererKind.mailbox, model="me")
    return made


def with_search(folder: RunFolder, death: Death, use: Callable[[MailboxSearch], object]) -> None:
    opened = open_archive(folder) if folder.archive.exists() else create_archive(folder)
    with opened as archive:
        voice = RunConsole(console=Console(file=io.StringIO()), budget=None)
        mortal: Any = MortalArchive(archive, death)
        use(MailboxSearch(config=config(), bank=small_bank(), folder=folder, archive=mortal, console=voice))


def ask(folder: RunFolder, death: Death) -> None:
    for each in folder.subfolders:
        each.mkdir(parents=True, exist_ok=True)
    with_search(folder, death, lambda search: search.ask(2))


def tell(folder: RunFolder, death: Death, *, partial: bool = False) -> None:
    inbox = read_inbox(folder.inbox, model="me", used_tools=False)
    with_search(folder, death, lambda search: search.tell(inbox, partial=partial))


def tell_partial(folder: RunFolder, death: Death) -> None:
    tell(folder, death, partial=True)


def evaluate(folder: RunFolder, _death: Death) -> None:
    job = read_job(folder.pending)
    files = MeasuredFiles(folder=folder.measured, job=job, note=lambda _text: None)
    for source in pending_sources(folder.pending)[0].values():
        if files.find(source) is None:
            write_measured(folder.measured, source, judge_knobs(source))


def answer(folder: RunFolder, *, spoil: str = "") -> None:
    """A person's or a model's part, which is not cut: one reply may be spoilt, so that it is asked for again."""
    for name, text in ByFiles(folder=folder, table=Path()).answers().items():
        (folder.inbox / name).write_text("I would widen the tiles." if name == spoil else text, encoding="utf-8")


STEPS: tuple[tuple[Callable[[RunFolder, Death], None], str | None], ...] = (
    # the step, and which prompt's reply is spoilt after it ("" none, None: nobody answers)
    (ask, None), (evaluate, None), (ask, "0001.md"), (tell, None), (tell_partial, None), (evaluate, None), (ask, None),
)  # fmt: skip


def listen(death: Death, folder: RunFolder) -> None:
    """Let death hear of every change to the folder's files, before it is made. For the rest of the process."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(path, str) and bool(flags & _WRITING)
        else:
            path, changes = str(arguments[0]) if arguments else "", event in _CHANGING
        if changes and str(folder.path) in str(path):
            death.passes(f"{event} {Path(str(path)).suffix or 'folder'}")

    sys.addaudithook(heard)


def in_a_child(step: Callable[[RunFolder, Death], None], folder: RunFolder, at: int | None) -> list[str]:
    """Make a step in a process of its own, to be killed there; the moments, where it was not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        death = Death(at=at)
        listen(death, folder)
        step(folder, death)
        os.write(writing, json.dumps(death.moments).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        moments = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) != (at is not None) or (at is not None and os.WTERMSIG(status) != signal.SIGKILL):
        raise RuntimeError(f"a step at {folder.path}, to be killed at {at}, ended with status {status}")
    return [] if at is not None else list(json.loads(moments))


def snapshot(folder: RunFolder) -> dict[str, Any]:
    """What a person and the next step find there; left-over temporary files count as nothing."""
    shown = {
        str(path.relative_to(folder.path)): path.read_text(encoding="utf-8")
        for part in (folder.outbox, folder.inbox, folder.pending, folder.measured, folder.kernels)
        for path in sorted(part.iterdir())
        if path.suffix != ".tmp"
    }
    result = json.loads(folder.result.read_text(encoding="utf-8")) if folder.result.exists() else None
    return {**left_behind(folder), "files": shown, "result": result}


def copied(folder: RunFolder, path: Path) -> RunFolder:
    shutil.copytree(folder.path, path)
    return RunFolder(path)


def one_of_each(kinds: Sequence[str]) -> list[int]:
    """The moment in the middle of each kind, but for those that come right after another."""
    wanted = [kind for kind in dict.fromkeys(kinds) if not kind.startswith("before ")]
    places = {kind: [at for at, each in enumerate(kinds) if each == kind] for kind in wanted}
    return sorted(found[len(found) // 2] for found in places.values())


def main(root: Path) -> None:
    cuts, kinds, differences = 0, set(), []
    stands = RunFolder(root / "run")
    stands.path.mkdir()
    add_kernel(stands, AddedKernel(source=f"{SOURCE}// by hand\n"))
    for number, (step, spoil) in enumerate(STEPS):
        before = copied(stands, root / f"before-{number}")
        step(stands, Death())
        wanted = snapshot(stands)
        moments = in_a_child(step, copied(before, root / f"uncut-{number}"), None)
        for at in one_of_each(moments):
            cut = copied(before, root / f"cut-{number}-{at}")
            in_a_child(step, cut, at)
            step(cut, Death())
            found = snapshot(cut)
            cuts += 1
            kinds.add(moments[at])
            differences += [
                f"step {number} {step.__name__}, {moments[at]}: {key}" for key in wanted if wanted[key] != found[key]
            ]
        if spoil is not None:
            answer(stands, spoil=spoil)
    json.dump({"cuts": cuts, "kinds": sorted(kinds), "differences": differences}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
