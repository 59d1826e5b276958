"""Whether a kernel reads its parameters where they lie and nowhere beside them, by its PTX.

Before the parameters, in the same bank of constants, stands what the driver has put there for the kernel; ptxas takes
from it the plain address of the parameters, by which they could be written (fitness/ptx_parameters.py). An index below
0 reads it, in C++ too. So the place of each read must be known from the text: a parameter, and a number of bytes.
"""

import re

from fitness.ptx import functions, instruction, registers, results, shown

_MOST_BYTES = 10_000  # beyond all parameters, and too few for an offset to come round to what lies before them
_MOST_STEPS = 16  # from a parameter's name to the register by which it is read; NVRTC takes two
_READ = re.compile(r"ld[\w.:]{0,200}\.param")  # without spaces, and whatever stands before it
_NUMBER = "(?P<offset>0|-?[1-9][0-9]{0,5})"  # one that begins with 0 is octal
_PLACE = re.compile(rf"[^\[]*,\[(?P<base>[A-Za-z_$%][\w$]*)(?:\+{_NUMBER})?\]")
_REGISTERS_DECLARED = re.compile(r"\.reg(?!\w)")
_NAMED = re.compile(rf"[\w$%]+,(?P<base>[A-Za-z_$%][\w$]*)(?:\+{_NUMBER})?")
_ADDED = re.compile(rf"[\w$%]+,(?P<base>[A-Za-z_$%][\w$]*),{_NUMBER}")
_STEPS = {"mov.b64": _NAMED, "mov.u64": _NAMED, "mov.s64": _NAMED, "add.s64": _ADDED, "add.u64": _ADDED}


def unbounded_read(ptx: str) -> str:
    """The first instruction that reads a parameter at a place that is not fixed, or outside; "" where none does."""
    return next(filter(None, map(_astray, functions(ptx))), "")


def _astray(function: list[str]) -> str:
    reads = [statement for statement in function if _READ.search(_dense(statement))]
    if not reads:
        return ""
    declared: set[str] = set()
    definitions: dict[str, list[re.Match[str] | None]] = {}
    for statement in function:
        if declaration := _REGISTERS_DECLARED.search(statement):
            declared.update(registers(statement[declaration.end() :]))
        step = _step(statement)
        for name in results(instruction(statement)[1]):
            definitions.setdefault(name, []).append(step)
    for statement in reads:
        dense = _dense(statement)
        found = _PLACE.fullmatch(dense, max(read.end() for read in _READ.finditer(dense)))
        if found is None or not _lies_within(found, definitions, declared):
            return shown(statement)
    return ""


def _lies_within(
    found: re.Match[str], definitions: dict[str, list[re.Match[str] | None]], declared: set[str]
) -> bool:
    """Whether a place is so many bytes into a parameter, from its name by registers that are written once."""
    offset = 0
    for _ in range(_MOST_STEPS):
        offset += int(found["offset"] or 0)
        (name,) = registers(found["base"])
        if not (name.startswith("%") or name in declared or name.rstrip("0123456789") in declared):
            return 0 <= offset < _MOST_BYTES
        steps = definitions.get(name, [])
        if len(steps) != 1 or steps[0] is None:
            return False
        found = steps[0]
    return False


def _step(statement: str) -> re.Match[str] | None:
    """What a register is made of, where that is another one, or a name, and a number; None for anything else."""
    operation, operands = instruction(statement)
    pattern = _STEPS.get(operation)
    return pattern.fullmatch(_dense(operands)) if pattern and "@" not in statement else None


def _dense(text: str) -> str:
    return "".join(text.split())
