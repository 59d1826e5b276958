"""`evo compare` on single shots: the same question about the same parent, style by style."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from evo.compare.files import as_csv, as_json
from evo.compare.runs import read_run
from evo.compare.shot_summary import compare_shots
from evo.compare.shot_tables import shot_tables
from evo.compare.shot_words import shot_cautions, shot_conclusions
from evo.compare.shots import read_shots
from evo.settings import ConfigError
from population.atomic_file import write_atomically
from population.run_folder import RunFolder


def show_shots(
    found: Mapping[str, RunFolder], options: Mapping[str, str], files: Mapping[str, Path], console: Console
) -> int:
    """Exit code 0, whatever the comparison says. Raises ConfigError for an option that makes no sense here."""
    if unfit := [f"{key}={value}" for key, value in options.items() if (key, value) != ("by", "style")]:
        raise ConfigError(f"compare: {unfit[0]}: single shots are compared by style, pair by pair; leave it out")
    if "--plot" in files:
        raise ConfigError("compare: --plot: a single shot has no way to a best that could be drawn; leave it out")
    comparison = compare_shots([shot for name, folder in found.items() for shot in read_shots(name, folder)])
    runs = [read_run(name, folder) for name, folder in found.items()]
    said, warned = shot_conclusions(comparison), shot_cautions(runs, comparison.shots)
    for table in shot_tables(comparison, offline=any(run.offline for run in runs)):
        console.print(table)
    for line in (*said, *(f"caution: {each}" for each in warned)):
        console.print(Text(line), soft_wrap=True)
    for flag, path in files.items():
        text = as_csv(comparison.shots) if flag == "--csv" else as_json(comparison, said, warned)
        write_atomically(path, text)
        console.print(Text(f"written: {path}"), soft_wrap=True)
    return 0
