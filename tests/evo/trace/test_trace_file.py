"""The file of a trace: what was written comes back, and anything else is refused in one sentence."""

import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evo.trace.trace_file import TraceError, read_lines, sealed, write_trace

LINES: list[dict[str, Any]] = [
    {"kind": "trace", "schema": 1, "run": "a run"},
    {"kind": "reply", "text": "× \ud800 {threadIdx.x}\r\n\0"},
    {"kind": "event", "record": [1, None, 0.5]},
]


def read(path: Path) -> list[tuple[int, dict[str, Any]]]:
    return list(read_lines(path))


def content(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(sealed(lines))


@pytest.mark.parametrize(
    ("name", "decompress"),
    [("t.jsonl", bytes), ("t.jsonl.gz", gzip.decompress), ("t.jsonl.xz", lzma.decompress)],
)
def test_what_was_written_comes_back(tmp_path: Path, name: str, decompress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    write_trace(path, LINES)
    assert read(path) == list(enumerate(LINES, start=1))
    assert decompress(path.read_bytes()) == content(LINES)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.xz"])
def test_the_same_lines_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    write_trace(tmp_path / name, LINES)
    write_trace(tmp_path / "other" / name, LINES)
    assert (tmp_path / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_last_line_seals_those_before_it() -> None:
    *told, last = content(LINES).splitlines(keepends=True)
    assert json.loads(last) == {"kind": "end", "lines": 3, "sha256": hashlib.sha256(b"".join(told)).hexdigest()}


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(TraceError, match=r"mine\.txt is there already; name another file"):
        write_trace(path, LINES)
    assert path.read_text(encoding="utf-8") == "mine"


def test_what_cannot_be_told_to_its_end_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_trace(tmp_path / "t.jsonl", [*LINES, {"kind": "reply", "cost_usd": float("nan")}])
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(tmp_path / "nowhere" / "t.jsonl", LINES)
    assert list(tmp_path.iterdir()) == []


WHOLE = content(LINES)
NEWER = content([{**LINES[0], "schema": 2, "new": True}, *LINES[1:]])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (b"", "is empty; expected what evo trace export wrote"),
        (WHOLE[:-1], "line 4: the trace is cut off there"),
        (WHOLE[:100], "the trace is cut off there"),
        (b"".join(WHOLE.splitlines(keepends=True)[:3]), "is cut off after line 3: its last line is missing"),
        (b"".join(WHOLE.splitlines(keepends=True)[::3]), "its checksum does not match"),
        (WHOLE.replace(b"0.5", b"0.6"), "was altered since it was written: its checksum does not match"),
        (WHOLE.replace(b'"lines": 3', b'"lines": 4'), "its checksum does not match"),
        (WHOLE + b'{"kind": "reply"}\n', "line 5: something follows the trace's last line"),
        (WHOLE + WHOLE, "holds several traces, one after the other: evo compare reads them all, evo trace replay one"),
        (NEWER, "schema 2, written by a newer evo; this one reads 1: upgrade evo"),
        (NEWER.splitlines(keepends=True)[0] + b"and more", "schema 2, written by a newer evo"),
        (b'{"kind": "reply"}\n', "is no trace: its first line names no schema"),
        (b'{"kind": "trace", "schema": true}\n', "is no trace"),
        (b'{"kind": "trace", "schema": 1}\nnonsense\n', "line 2 is no line of a trace"),
        (b'{"kind": "trace", "schema": 1}\n{"kind": "reply", "cost": NaN}\n', "line 2 is no line of a trace"),
        (b'{"kind": "trace", "schema": 1}\n[1]\n', "expected a JSON object with a kind"),
        (b'{"kind": "trace", "schema": 1}\n{"kind": 1}\n', "expected a JSON object with a kind"),
        (b'{"kind": "trace", "schema": 1}\n' + b"[" * 100_000 + b"\n", "line 2 is no line of a trace"),
        (b"SQLite format 3\0\xff\xfe\n", "line 1 is no line of a trace"),
    ],
)
@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_anything_else_is_refused(
    tmp_path: Path, changed: bytes, said: str, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    path.write_bytes(compress(changed))
    with pytest.raises(TraceError, match=said) as refused:
        read(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("name", "pack", "reader"),
    [("a t.jsonl", bytes, "cat"), ("a t.gz", gzip.compress, "gzip -dc"), ("a t.xz", lzma.compress, "xz -dc")],
)
def test_how_to_take_one_trace_out_of_several_is_said(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], reader: str
) -> None:
    path, one = tmp_path / name, tmp_path / "one.jsonl"
    path.write_bytes(pack(WHOLE + content([*LINES, LINES[1]])))
    with pytest.raises(TraceError) as refused:
        read(path)
    assert str(refused.value).endswith(f"lines 1 to 4: {reader} '{path}' | head -n 4 > one.jsonl")
    one.write_bytes(b"".join(WHOLE.splitlines(keepends=True)[:4]))
    assert [line for _, line in read(one)] == json.loads(json.dumps(LINES))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("kept", [0, 5, 40, 90])
def test_a_compressed_file_that_is_cut_off_or_none_is_refused(tmp_path: Path, suffix: str, kept: int) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    write_trace(path, LINES)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(TraceError, match=r"is cut off|cannot be read|is empty"):
        read(path)
    path.write_bytes(WHOLE)
    with pytest.raises(TraceError, match="cannot be read"):
        read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl cannot be read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path)
