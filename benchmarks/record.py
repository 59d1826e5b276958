"""What every benchmark writes beside its figures: where, when, by which command and with which versions."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fitness.probe import Machine
from population.atomic_file import strict_json, write_atomically


def argument_parser(description: str | None, default_name: str) -> argparse.ArgumentParser:
    """A parser with the one option that all benchmarks have: --out, the JSON file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("docs/results") / default_name, help="the JSON file to write")
    return parser


def write_record(path: Path, machine: Machine, figures: Mapping[str, object], versions: Mapping[str, str]) -> None:
    """Write the figures with their circumstances. `versions` adds to those of the installed packages."""
    record = {
        "device": machine.gpus[0].name if machine.gpus else machine.processor,
        "driver": machine.driver,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(sys.argv),
        "versions": {"python": sys.version.split()[0], **machine.packages, **versions},
        **figures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, strict_json(record, sort_keys=False, indent=1) + "\n")
    print(f"written: {path}")


def command_line(arguments: Sequence[str]) -> str:
    """The command as it is given in the repository's root: wherever that lies, the record must not say."""
    root = Path(__file__).resolve().parents[1]
    program = Path(arguments[0]).resolve()
    shown = program.relative_to(root) if program.is_relative_to(root) else program.name
    return " ".join(["PYTHONPATH=. python3", str(shown), *arguments[1:]])


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their heads, the first column left-aligned, numbers to four digits."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for first, *others in cells:
        aligned = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *aligned]))


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
