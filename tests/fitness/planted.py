"""What a planted kernel must get: its first line says so.

`// expect: STATUS: PIECE`, where the reason that it gets must have the piece in it: another rule may refuse it too. A
line `// on a GPU: STATUS: PIECE` follows where a GPU finds something else. A piece is left out of what must get PASSED,
and on a GPU where the device's luck decides on it; where luck decides on the status, `any` stands there.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from fitness.evaluation import Status


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A status (None: any), and a piece of the reason ("": whatever it is)."""

    status: Status | None
    piece: str

    def complaint(self, status: Status, reason: str) -> str:
        """What was found, if it is not what was expected; "" where it is."""
        right = self.status in (None, status) and self.piece in reason
        return "" if right else f"expected {self.status or 'any status'}: {self.piece}; found {status}: {reason}"


def expected_on_host(path: Path) -> Expected:
    """What the first line says."""
    return _read(path.read_text(encoding="utf-8").splitlines()[0], "expect")


def expected_on_gpu(path: Path) -> Expected:
    """What the line for a GPU says, if it has one, or else the first."""
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    return _read(second, "on a GPU") if second.startswith("// on a GPU:") else _read(first, "expect")


def _read(line: str, label: str) -> Expected:
    found = re.fullmatch(rf"// {label}: (\w+)(?:: (\S.*))?", line)
    assert found, f"{line!r} is not of the form '// {label}: STATUS: PIECE OF THE REASON'"
    return Expected(status=None if found[1] == "any" else Status(found[1]), piece=found[2] or "")
