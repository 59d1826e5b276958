"""The tool `disassemble`: the machine code of one kernel of a draft, and how often it uses which instruction."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evo.tools.draft_judge import DraftJudge
from evo.tools.tool import schema
from fitness.child_environment import listed_environment
from fitness.evaluator import Compiled

_LINES_MAX: Final = 250
_KINDS_MAX: Final = 30
_TIMEOUT_S: Final = 60.0
_SASS: Final = re.compile(r"^\s*/\*(?P<place>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*[^;\s])\s*;")
_NATIVE: Final = re.compile(r"^\s+(?P<place>[0-9a-f]+):\s+(?P<text>\S.*)$")
_OPCODE: Final = re.compile(r"(?:@!?U?P\w+\s+)?(?P<opcode>\w+)")


class Disassemble:
    """Shows machine code: SASS by cuobjdump, or with `on_gpu` false the processor's by objdump.

    `program` is the path of the one or the other; None where it is not there.
    """

    name = "disassemble"
    description = (
        f"the machine code of one kernel of a draft, at most {_LINES_MAX} instructions of it, after a count of all its "
        "instructions by kind; compiles, does not run"
    )
    parameters: Mapping[str, Any] = schema(
        kernel={"type": "string", "description": "the kernel's name; if not given, the first that is launched"},
        build={"type": "string", "description": "the build's name, as measure gives it; if not given, the first"},
        first={
            "type": "integer",
            "description": "the number of the first instruction to show, from 0; if not given, 0",
        },
    )

    def __init__(self, judge: DraftJudge, *, program: str | None, on_gpu: bool) -> None:
        self._judge = judge
        self._program = program
        self._on_gpu = on_gpu

    def call(self, source: str, arguments: Mapping[str, Any]) -> str:
        """Counts and code. Raises EnvironmentFault."""
        if self._program is None:
            return f"not available: {disassembler(on_gpu=self._on_gpu)} is not on the PATH"
        compiled = self._judge.compiled(source)
        if isinstance(compiled, str):
            return compiled
        builds = {each.report.name: each for each in compiled.builds}
        build = arguments.get("build", next(iter(builds)))
        kernels = _kernels(compiled)
        kernel = arguments.get("kernel", kernels[0])
        if build not in builds or kernel not in kernels:
            return (
                f"there is no {kernel} in {build}; the kernels are {', '.join(kernels)}, the builds {'; '.join(builds)}"
            )
        listing = self._listing(self._program, kernel, builds[build].binary)
        instructions = read_listing(listing, _SASS if self._on_gpu else _NATIVE)
        if not instructions:
            return f"not available: {self._program} shows no code of {kernel}: {' '.join(listing.split())[-300:]}"
        return "\n".join((f"{kernel}, {build}", *_shown(instructions, max(0, arguments.get("first", 0)))))

    def _listing(self, program: str, kernel: str, binary: Path) -> str:
        gpu_options, options = ["--dump-sass", "--function", kernel], ["--no-show-raw-insn", f"--disassemble={kernel}"]
        command = [program, *(gpu_options if self._on_gpu else options), str(binary)]
        environment = listed_environment(os.environ)
        try:
            done = subprocess.run(  # noqa: S603  # the kernel's name is one of the manifest's, an identifier
                command, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return (done.stdout + done.stderr).decode(errors="replace")


def disassembler(*, on_gpu: bool) -> str:
    """The name of the program that shows a build's code."""
    return "cuobjdump" if on_gpu else "objdump"


def read_listing(text: str, pattern: re.Pattern[str] = _SASS) -> list[tuple[str, str]]:
    """Place and text of each instruction of a disassembler's listing."""
    return [
        (found["place"], " ".join(found["text"].split())) for found in map(pattern.match, text.splitlines()) if found
    ]


def _kernels(compiled: Compiled) -> list[str]:
    launches = (launch for plan in compiled.plan.scenarios for launch in plan.launches)
    return list(dict.fromkeys(launch.kernel for launch in launches))


def _shown(instructions: list[tuple[str, str]], first: int) -> list[str]:
    kinds = Counter(found["opcode"] for found in (_OPCODE.match(text) for _, text in instructions) if found)
    counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(_KINDS_MAX))
    shown = instructions[first : first + _LINES_MAX]
    beyond = len(instructions) - first - len(shown)
    more = [f"({beyond} more from instruction {first + len(shown)} on)"] if beyond > 0 else []
    return [f"{len(instructions)} instructions: {counts}", *(f"{place} {text}" for place, text in shown), *more]
