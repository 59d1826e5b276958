"""`evo kernels`: put kernels that a person made to a run, and join two of its kernels to one."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from evo.added_kernels import AddedKernel, add_kernel, kernels_taken_in, read_kernel
from evo.console import say
from evo.kernel_checks import (
    read_source,
    require_generations,
    require_individuals,
    require_kernel,
    waiting_kernels,
    was_judged,
    why_not_run,
    why_over,
)
from evo.merging import Merged, merge
from evo.run_options import open_run
from evo.settings import ConfigError
from population.archive_reader import ArchiveReader, read_archive
from population.atomic_file import write_atomically
from population.run_folder import RunFolder

PUT, NOT_DONE = 0, 1
_ADD = "evo kernels add RUN KERNEL.cu… [parents=ID,ID]"
_MERGE = "evo kernels merge RUN ID ID"


def kernels(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0; 1 where the run is over, or two kernels cannot be joined as they are.

    Raises ConfigError for a bad command line, and for what is no kernel.
    """
    if not arguments or arguments[0] not in _ACTIONS:
        what = f"{arguments[0]!r} is no action" if arguments else "no action named"
        raise ConfigError(f"kernels: {what}; expected {_ADD} | {_MERGE}")
    return _ACTIONS[arguments[0]](arguments[1:], console)


def _add(words: Sequence[str], console: Console) -> int:
    named = [word for word in words if word.startswith("parents=")]
    plain = [word for word in words if not word.startswith("parents=")]
    if len(plain) < 2 or len(named) > 1:
        raise ConfigError(f"kernels add: expected a run and one kernel or more: {_ADD}")
    parents = tuple(dict.fromkeys(named[0].partition("=")[2].split(","))) if named else ()
    run = open_run(plain[0])
    added = [AddedKernel(source=read_source(name), parent_ids=parents) for name in plain[1:]]
    with read_archive(run) as archive:
        require_generations(run, archive)
        require_individuals(run, archive, parents)
        warnings = [why_not_run(run, archive, kernel.source) for kernel in added]  # before any is put in: it may raise
        for kernel, warning in zip(added, warnings, strict=True):
            _tell(console, _put(run, archive, kernel), warning)
    return _tell_where_over(run, console)


def _merge(words: Sequence[str], console: Console) -> int:
    if len(words) != 3 or words[1] == words[2]:
        raise ConfigError(f"kernels merge: expected a run and the ids of two different kernels of it: {_MERGE}")
    run, names = open_run(words[0]), (words[1], words[2])
    with read_archive(run) as archive:
        require_generations(run, archive)
        for name in names:
            if not archive.holds(name):
                raise ConfigError(f"kernels merge: {name!r} is no kernel of {run.path}; expected an id")
        merged = merge(archive, names)
        if why := _unfinished(names, merged):
            return _leave(run, names, merged.source, why, console)
        kernel = AddedKernel(source=merged.source, parent_ids=names)
        warning = why_not_run(run, archive, kernel.source)
        put = f"{names[0]} and {names[1]}, joined over {merged.base}: {_put(run, archive, kernel)}"
        _tell(console, put, warning)
    return _tell_where_over(run, console)


def _put(run: RunFolder, archive: ArchiveReader, kernel: AddedKernel) -> str:
    """What became of a kernel; a text that the run has is not put to it again."""
    taken_in = any(taken.kernel.id == kernel.id for taken in kernels_taken_in(archive))
    if was_judged(archive, kernel.id) or (taken_in and archive.evaluation_json(kernel.id) is not None):
        return f"{kernel.id} was judged before: nothing new"
    if taken_in:
        return f"{kernel.id} is taken in already, and waits to be measured"
    if (path := waiting_kernels(run).get(kernel.id)) is not None:
        return f"{kernel.id} waits already, {_of(read_kernel(path))}, as {path}"
    path = add_kernel(run, kernel)
    return f"{kernel.id} is judged beside the children of the run's next generation; it waits as {path}"


def _of(kernel: AddedKernel) -> str:
    return f"with parents={','.join(kernel.parent_ids)}" if kernel.parent_ids else "without parents"


def _unfinished(names: tuple[str, str], merged: Merged) -> str:
    """Why a joined text is no kernel yet; "" where it is one."""
    if merged.conflicts:
        lines = ", ".join(f"{first} to {last}" for first, last in merged.conflicts)
        return f"{names[0]} and {names[1]} have both changed the same of {merged.base}: see lines {lines}"
    try:
        require_kernel(merged.source, f"{names[0]} joined with {names[1]}")
    except ConfigError as fault:
        return str(fault)
    return ""


def _leave(run: RunFolder, names: tuple[str, str], source: str, why: str, console: Console) -> int:
    """Put a text where a person can finish it."""
    path = run.added / f"{names[0]}-{names[1]}.cu"
    if path.exists():
        raise ConfigError(f"{path} is there already, from an earlier merge; finish it, or move it away")
    run.added.mkdir(exist_ok=True)
    write_atomically(path, source)
    say(console, why)
    say(console, f"finish {path}, then: evo kernels add {run.path} {path} parents={','.join(names)}")
    return NOT_DONE


def _tell_where_over(run: RunFolder, console: Console) -> int:
    if not (reason := why_over(run)):
        return PUT
    say(console, f"the search is over: {reason}. Nothing is lost: it takes in what waits once it is gone on with")
    return NOT_DONE


def _tell(console: Console, put: str, warning: str) -> None:
    for line in filter(None, (put, warning)):
        say(console, line)


_ACTIONS: Mapping[str, Callable[[Sequence[str], Console], int]] = {"add": _add, "merge": _merge}
