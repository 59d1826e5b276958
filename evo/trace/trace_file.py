"""The file of a trace: JSON Lines between a first line that names the schema and a last one that seals the rest."""

import gzip
import hashlib
import lzma
import os
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from population.atomic_file import parse_json, strict_json

SCHEMA: Final = 1
FIRST, LAST = "trace", "end"  # the kinds of the first and the last line

Line = Mapping[str, Any]


class TraceError(Exception):
    """A trace cannot be written, or is not what was written."""


def sealed(lines: Iterable[Line]) -> Iterator[bytes]:
    """The lines as strict JSON in ASCII, then one that holds their number and the SHA-256 of their bytes."""
    digest, count = hashlib.sha256(), 0
    for line in lines:
        text = _encoded(line)
        digest.update(text)
        count += 1
        yield text
    yield _encoded({"kind": LAST, "lines": count, "sha256": digest.hexdigest()})


def write_trace(path: Path, lines: Iterable[Line]) -> None:
    """Put a trace in place, whole or not at all, compressed where its name ends in .gz or .xz.

    The same lines give the same bytes. Raises TraceError where the file is there already or cannot be written.
    """
    if path.exists():
        raise TraceError(f"{path} is there already; name another file")
    temporary = path.parent / f"{path.name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as raw, _compressing(raw, path.suffix) as file:
            for line in sealed(lines):
                file.write(line)
        temporary.replace(path)
    except OSError as error:
        why = error.strerror or error
        raise TraceError(f"{path} cannot be written ({why}); name another file or make room") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the content of each line but the last of the one trace in a file.

    Raises TraceError as `read_all_lines` does, and for a second trace.
    """
    for number, line in read_all_lines(path):
        if line["kind"] == FIRST and number > 1:
            raise TraceError(_several(path, number - 1))
        yield number, line


def read_all_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the content of each line but the last ones of the traces in a file, one after the other.

    Whether a trace is whole shows when the next begins, or the iteration ends. Raises TraceError for a file that cannot
    be read, is no trace, is cut off or altered, or of a newer schema.
    """
    digest, lines, number = hashlib.sha256(), 0, 0  # `lines` of the trace that is being read
    for number, raw in enumerate(_raw_lines(path), start=1):
        line = _parsed(raw, f"{path}, line {number}")
        if lines == 0:
            _require_first(line, path, number)
        if line["kind"] == LAST:
            _require_seal(line, lines, digest.hexdigest(), path)
            digest, lines = hashlib.sha256(), 0
            continue
        digest.update(raw)
        lines += 1
        yield number, line
    if number == 0:
        raise TraceError(f"{path} is empty; expected what evo trace export wrote")
    if lines:
        raise TraceError(f"{path} is cut off after line {number}: its last line is missing; copy it again")


def _several(path: Path, lines: int) -> str:
    """What to do with a file of several traces, the first of which has so many lines."""
    reader, named = {".gz": "gzip -dc", ".xz": "xz -dc"}.get(path.suffix, "cat"), shlex.quote(str(path))
    return (
        f"{path} holds several traces, one after the other: evo compare reads them all, evo trace replay one; "
        f"take one out, such as the first, lines 1 to {lines}: {reader} {named} | head -n {lines} > one.jsonl"
    )


def _require_first(line: Line, path: Path, number: int) -> None:
    if number > 1 and line["kind"] != FIRST:
        raise TraceError(f"{path}, line {number}: something follows the trace's last line; export it again")
    _require_schema(line, path)


def _require_seal(seal: Line, lines: int, digest: str, path: Path) -> None:
    if (seal.get("lines"), seal.get("sha256")) != (lines, digest):
        raise TraceError(f"{path} was altered since it was written: its checksum does not match; copy it again")


@contextmanager
def _compressing(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """A file that writes into `raw`; without a name and a time in it, so that equal content is equal bytes."""
    match suffix:
        case ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                yield cast(IO[bytes], file)
        case ".xz":
            with lzma.open(raw, "wb") as file:
                yield cast(IO[bytes], file)
        case _:
            yield raw


def _raw_lines(path: Path) -> Iterator[bytes]:
    opened: Mapping[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with opened.get(path.suffix, Path.open)(path, "rb") as file:
            yield from file
    except EOFError as error:
        raise TraceError(f"{path} is cut off: its compressed data has no end; copy it again") from error
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read ({error}); expected what evo trace export wrote") from error


def _parsed(raw: bytes, place: str) -> dict[str, Any]:
    if not raw.endswith(b"\n"):
        raise TraceError(f"{place}: the trace is cut off there; copy it again")
    try:
        line = parse_json(raw.decode("ascii"))
    except ValueError as error:
        raise TraceError(f"{place} is no line of a trace: {error}; expected what evo trace export wrote") from error
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        raise TraceError(f"{place} is no line of a trace; expected a JSON object with a kind")
    return line


def _require_schema(line: Line, path: Path) -> None:
    schema = line.get("schema")
    if line["kind"] != FIRST or type(schema) is not int or schema < 1:
        raise TraceError(f"{path} is no trace: its first line names no schema; expected what evo trace export wrote")
    if schema > SCHEMA:
        raise TraceError(f"{path}: schema {schema}, written by a newer evo; this one reads {SCHEMA}: upgrade evo")


def _encoded(line: Line) -> bytes:
    return (strict_json(line, sort_keys=False) + "\n").encode("ascii")
