"""`evo table`: what runs have measured, as a table that `backend=recorded` answers from."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from evo.compare.runs import find_runs
from evo.console import say
from evo.exported_table import gather_evaluations
from evo.seed_words import seed_words
from evo.settings import ConfigError
from evo.suite_words import suite_words
from fitness.backends.recorded import export_table

_FEW = 50  # kernels, below which nearly every child of a search is another one
_USAGE = "expected evo table RUN… --out FILE.jsonl, .jsonl.gz or .jsonl.xz"


def table(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0. Raises ConfigError for a bad command line and for runs that were measured apart, and RunFault."""
    words = list(arguments)
    if words.count("--out") != 1 or words[-1] == "--out":
        raise ConfigError(f"table: no file named; {_USAGE}")
    place = words.index("--out")
    out = Path(words[place + 1])
    names = words[:place] + words[place + 2 :]
    if not names or any(name.startswith("-") for name in names):
        raise ConfigError(f"table: {' '.join(names) or 'no run named'}; {_USAGE}")
    if not out.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        raise ConfigError(f"table: --out {out}; {_USAGE}")
    runs = find_runs(names)
    evaluations = gather_evaluations(runs)
    export_table(evaluations, out)
    kernels = len({evaluation.source_sha256 for evaluation in evaluations})
    said = f"{out}: {len(evaluations)} evaluations of {kernels} kernels on {evaluations[0].suite}; to search in it: "
    timed = next((evaluation for evaluation in evaluations if evaluation.speedups), evaluations[0])
    folders = list(runs.values())
    begun = [*suite_words(folders, timed), f"baseline={timed.environment.baseline}", *seed_words(folders)]
    words_to_use = shlex.join(["backend=recorded", f"backend.table={out}", *begun])
    say(console, f"{said}evo evolve {words_to_use}")
    if kernels < _FEW:
        meets = f"with {kernels} kernels a search will mostly meet others, which are UNSUPPORTED there"
        say(console, f"{meets}; benchmarks/variant_table.py makes a table to search in")
    return 0
