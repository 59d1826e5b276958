"""From a run's name to its next step: begins a run by files, or goes on with it under its lock."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from evo.answerers.mailbox import Inbox
from evo.config import AnswererKind, BackendKind, Config
from evo.console import RunConsole
from evo.mailbox_search import MailboxSearch, Waiting
from evo.preflight import refuse_seeds_not_for_host
from evo.run_options import (
    Options,
    earlier_overrides,
    has_options,
    join_options,
    keep_options,
    locate_run,
    merged_overrides,
    open_run,
    require_files,
)
from evo.settings import ConfigError
from evo.suites import require_timed
from evo.toolbox import build_bank
from population.archive import create_archive, open_archive
from population.faults import RunFolderError
from population.run_folder import RunFolder

ANSWERED_BY_FILES = "answerer=mailbox"
KNOBS_ONLY = (
    "on the host backend a reply that changes more than knob values is INVALID for good; to have a model's code run, "
    "with the rights of whoever measures, say backend.run_model_code=true at evo ask before it is measured, and at "
    "evo evaluate"
)


def ask(name: str, words: Sequence[str], *, count: int | None, console: Console) -> Waiting:
    """Put the next questions of a run, or those under way once more; a run that is not there is begun with the words.

    On a later call `words` join those of the beginning. Raises ConfigError, RunFault, BankError, EnvironmentFault.
    """
    if not name.strip():
        raise ConfigError("no run named; expected the folder of one, or a name for a new one")
    for word in words:
        if word.partition("=")[0] in ("name", "resume", "runs"):
            raise ConfigError(f"{word}: the run is named without a key; leave this out")
    folder = locate_run(name)
    earlier = earlier_overrides(folder) if has_options(folder) else [ANSWERED_BY_FILES]
    options = join_options(merged_overrides(earlier, words))
    if not folder.path.exists() and options.config.suite.name == "auto":
        need = "suite=… and seeds=…, as in suite=core26 seeds=[mma]"
        raise ConfigError(f"{folder.path}: no run of that name; expected one that is there, or, to begin one, {need}")
    _check(options.config)
    begins = not folder.archive.exists()
    if begins:
        _make(folder, options)
    with _opened(folder, options.config, console) as search:
        waiting = search.ask(count)
    if list(options.words) != earlier:
        keep_options(folder, options)  # only now, for a run may refuse them
    return replace(waiting, notes=(*_warnings(options.config), *waiting.notes)) if begins else waiting


def tell(name: str, read: Callable[[MailboxSearch], Inbox], *, partial: bool, console: Console) -> Waiting:
    """Go on with a run by what has come in: the replies that `read` gives, and the measured candidates.

    With `partial`, questions without a reply count as unanswered from now on. Raises as `ask` does.
    """
    folder = open_run(name)
    options = join_options(earlier_overrides(folder))
    _check(options.config)
    with _opened(folder, options.config, console) as search:
        return search.tell(read(search), partial=partial)


@contextmanager
def _opened(folder: RunFolder, config: Config, console: Console) -> Iterator[MailboxSearch]:
    bank = build_bank(config)
    with open_archive(folder) if folder.archive.exists() else create_archive(folder) as archive:
        voice = RunConsole(console=console, budget=config.stop.evaluations)
        yield MailboxSearch(config=config, bank=bank, folder=folder, archive=archive, console=voice)


def _check(config: Config) -> None:
    if config.answerer.kind is not AnswererKind.mailbox:
        kind = config.answerer.kind.value
        raise ConfigError(f"answerer={kind}: a run by files is answered by files; leave it out, or use evo evolve")
    require_timed(config)
    if config.suite.name == "auto":
        where = "where candidates are measured"
        raise ConfigError(f"suite=auto is settled {where}; name one at evo ask, as in suite=core26")
    if config.seeds is None:
        seed = "tiled" if config.backend.kind is BackendKind.host else "mma"
        where = "where candidates are measured"
        raise ConfigError(f"the seed is chosen {where}; name it at evo ask, as in seeds=[{seed}]")


def _warnings(config: Config) -> tuple[str, ...]:
    """What is worth knowing when a run begins."""
    native = config.backend.kind is BackendKind.host
    return (KNOBS_ONLY,) if native and not config.backend.run_model_code else ()


def _make(folder: RunFolder, options: Options) -> None:
    """The folder of a new run, all but its archive; one that was cut off at that is finished."""
    require_files(options.config)
    refuse_seeds_not_for_host(options.config)
    path = folder.path
    own = {each.name for each in folder.subfolders} | {folder.lock.name, ".hydra"}
    try:
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path}: this is a file; expected a run's folder, or a name for a new one")
        if strangers := [each.name for each in path.iterdir() if each.name not in own] if path.exists() else []:
            raise RunFolderError(f"{path}: no run, and not empty ({min(strangers)}); name another folder")
        path.mkdir(parents=True, exist_ok=True)
        for each in folder.subfolders:
            each.mkdir(exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"no run can be made at {path}: {error}; name another folder") from error
    keep_options(folder, options)
