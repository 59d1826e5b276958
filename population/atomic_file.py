"""Files that are whole or absent, and JSON that every reader takes."""

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def write_atomically(
    path: Path, text: str, *, sync: bool = True, rename: Callable[[Path, Path], object] = Path.replace
) -> None:
    """`path` holds all of `text` in UTF-8; after a crash at any moment it holds that or what it held before.

    A crash may leave `<name>.<pid>.tmp` beside it. Without `sync` the promise covers the end of the process, not a loss
    of power. `rename` puts the finished temporary file in place.
    Raises OSError, and UnicodeEncodeError for lone surrogates.
    """
    content = text.encode("utf-8")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        _sync_folder(path.parent)


def strict_json(value: object, *, sort_keys: bool = True, indent: int | None = None) -> str:
    """`value` as JSON in ASCII; with the default of sorted keys, equal values give equal text.

    Raises ValueError for NaN and infinities, TypeError for what JSON has no form for, keys that are no text included:
    Python would write 1 as "1" and never give it back.
    """
    _require_text_keys(value)
    return json.dumps(value, allow_nan=False, sort_keys=sort_keys, indent=indent)


def parse_json(text: str) -> Any:  # noqa: ANN401  # JSON is whatever was written
    """The value of a JSON text. Raises ValueError for anything else: NaN, Infinity, 1e999, what is nested too deep."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _require_text_keys(value: object) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{key!r} as a key of a JSON object; expected text")
            _require_text_keys(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _require_text_keys(each)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large for a JSON number")
    return number


def _sync_folder(folder: Path) -> None:
    """Without this a power loss may undo the rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)
