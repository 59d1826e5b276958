"""`evo trace`: a run as one file, and the search made again from that file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from evo.console import RunConsole, say
from evo.evaluation_records import evaluation_of
from evo.run_options import RUNS, open_run, run_and_file
from evo.settings import ConfigError
from evo.trace.replay import replay
from evo.trace.story import story
from evo.trace.trace import read_trace
from evo.trace.trace_file import sealed, write_trace
from population.archive_reader import read_archive

_USAGE = "expected evo trace export RUN [--out FILE] | replay TRACE [name=…]"


def trace(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0; 1 where a replay came to another result. Raises ConfigError for a bad command line."""
    if not arguments or arguments[0] not in _ACTIONS:
        what = f"{arguments[0]!r} is no action" if arguments else "no action named"
        raise ConfigError(f"trace: {what}; {_USAGE}")
    return _ACTIONS[arguments[0]](arguments[1:], console)


def _export(words: Sequence[str], console: Console) -> int:
    """To the console's file where no other is named, and then without a word of ours."""
    name, out = run_and_file(words, "trace export", _USAGE)
    run = open_run(name)
    with read_archive(run) as archive:
        if out is None:
            for line in sealed(story(run, archive)):
                console.file.write(line.decode("ascii"))
            return 0
        write_trace(out, story(run, archive))
    say(console, f"{out}: the trace of {run.path}; to search again from it: evo trace replay {out}")
    return 0


def _replay(words: Sequence[str], console: Console) -> int:
    names = [word.removeprefix("name=") for word in words if word.startswith("name=")]
    files = [word for word in words if not word.startswith("name=")]
    if len(files) != 1 or len(names) > 1 or files[0].startswith("-"):
        raise ConfigError(f"trace replay: {' '.join(words) or 'no trace named'}; {_USAGE}")
    told = read_trace(Path(files[0]))
    voice = RunConsole(console=console, budget=None)
    replayed = replay(told, Path(RUNS), names[0] if names else f"replay-{told.run}", voice)
    folder, result = replayed.folder, replayed.result
    with read_archive(folder) as archive:
        best = evaluation_of(archive, result["best"]["id"]) if result["best"] else None
    voice.farewell(result, best, str(folder.path), resumable=False)
    if replayed.differing:
        say(console, f"not as in the trace: {', '.join(replayed.differing)}")
        return 1
    say(console, f"as in the trace: {', '.join(replayed.compared) or 'it has nothing to compare with'}")
    return 0


_ACTIONS: Mapping[str, Callable[[Sequence[str], Console], int]] = {"export": _export, "replay": _replay}
