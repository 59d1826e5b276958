"""How many long lines our kernels share with others' sources: counts only, so that nobody has to read those.

A line counts without its indentation, its trailing comment and the backslash of a macro, and with its whitespace
collapsed, where more than 40 characters are left. The others are unpacked packages, as `pip download` fetches them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.record import argument_parser, print_table
from evo.data import include_folder, shipped_kernels
from population.atomic_file import strict_json, write_atomically

SOURCES = frozenset({".h", ".hpp", ".cuh", ".cu", ".cpp", ".inl", ".py"})
LONGER_THAN = 40

_COMMENT = re.compile(r"//.*|/\*.*?(?:\*/|$)")
_PYTHON_COMMENT = re.compile(r"(?<!\S)#.*")


def main() -> None:
    """Compare, print, write. Exits with 1 where a line is shared, with 2 for a folder without sources."""
    parser = argument_parser(__doc__, "shared-lines.json")
    parser.add_argument("packages", nargs="+", metavar="NAME=FOLDER", help="what the record says, and where it lies")
    arguments = parser.parse_args()
    sources, counts = set[str](), dict[str, int]()
    for package in arguments.packages:
        name, _, folder = package.partition("=")
        files = sorted(path for path in Path(folder or "-").rglob("*") if path.suffix in SOURCES and path.is_file())
        if not files:
            parser.error(f"{package}: no source there; expected NAME=FOLDER, with {', '.join(sorted(SOURCES))} in it")
        for path in files:
            sources |= long_lines(path)
        counts[name] = len(files)
    rows = [compare(path, sources) for path in (*shipped_kernels(), include_folder() / "attention.cuh")]
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python3 -m benchmarks.shared_lines NAME=FOLDER…, of the packages below",
        "longer_than": LONGER_THAN, "source_files": counts, "distinct_lines": len(sources), "kernels": rows,
    }  # fmt: skip
    write_atomically(arguments.out, strict_json(record, sort_keys=False, indent=1) + "\n")
    print(f"{sum(counts.values())} files, {len(sources)} different lines over {LONGER_THAN} characters")
    print_table(("kernel", "long lines", "shared"), [(row["kernel"], row["lines"], row["shared"]) for row in rows])
    raise SystemExit(any(row["shared"] for row in rows))


def compare(kernel: Path, sources: set[str]) -> dict[str, str | int]:
    """A kernel's name and checksum, how many long lines it has, and how many of them are among `sources`."""
    own = long_lines(kernel)
    return {
        "kernel": kernel.name,
        "sha256": hashlib.sha256(kernel.read_bytes()).hexdigest(),
        "lines": len(own),
        "shared": len(own & sources),
    }


def long_lines(path: Path) -> set[str]:
    """The different long lines of a file, normalised."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return set(_long(text.splitlines(), _PYTHON_COMMENT if path.suffix == ".py" else _COMMENT))


def _long(lines: Iterable[str], comment: re.Pattern[str]) -> Iterator[str]:
    for line in lines:
        code = " ".join(comment.sub("", line).rstrip().removesuffix("\\").split())
        if len(code) > LONGER_THAN:
            yield code


if __name__ == "__main__":
    main()
