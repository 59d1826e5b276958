"""Whether a kernel could write to the parameters of its own launch, read off its PTX.

They are read-only by the language, but an instruction that makes a plain address of one makes plain stores possible,
and the next replay of the launch finds what was stored (measured on an H200, driver 580). Kernels need such addresses
for one thing: a tensor map, which is a parameter, is named to the copy engine by its address. So what becomes of an
address is followed from register to register, and it may go nowhere else.
"""

import re

from fitness.ptx import functions, instruction, registers, results, shown

# Whatever stands before them: `.loc 1 2 3` needs no semicolon and no space.
_TAKEN = re.compile(r"cvta\s*\.\s*param(?![\w$])")
_ASKED = re.compile(r"isspacep\s*\.\s*param(?![\w$])")  # tells of any address whether it is one
_TAKEN_PLAINLY = re.compile(r"cvta\.param(?:::entry)?\.u64")
_PASSED_ON = re.compile(r"(?:mov|selp)\.[bsu]64|add\.[su]64")  # no flag and no predicate comes of them
_REGISTERS_DECLARED = re.compile(r"[\s{}]*+\.reg\s++\.[\w.]++\s++[\w$%<>,\s]++")  # of spaces there may be a million
_USED = re.compile(
    r"(?:cp\.async\.bulk\.tensor|cp\.async\.bulk\.prefetch\.tensor|cp\.reduce\.async\.bulk\.tensor)\..*"
    r"|prefetch\.(?:param\.)?tensormap"
)
_COMPARED = re.compile(r"setp\.(?:eq|ne)\.[bsu]64")


def writable_parameters(ptx: str) -> str:
    """The first instruction by which a parameter's address leaves what may be done with it; "" where none does."""
    return next(filter(None, map(_astray, functions(ptx))), "")


def _astray(function: list[str]) -> str:
    if not any(_TAKEN.search(statement) or _ASKED.search(statement) for statement in function):
        return ""
    addresses: list[str] = []
    users: dict[str, list[str]] = {}
    for statement in function:
        operation, operands = instruction(statement)
        names = registers(operands if operation else statement)
        if _TAKEN_PLAINLY.fullmatch(operation) and names:
            addresses.append(names[0])
        elif _ASKED.search(statement) or _TAKEN.search(statement):
            return shown(statement)
        elif not _REGISTERS_DECLARED.fullmatch(statement):
            for name in names:
                users.setdefault(name, []).append(statement)
    while addresses:
        for statement in users.pop(addresses.pop(), []):
            operation, operands = instruction(statement)
            if _PASSED_ON.fullmatch(operation):
                addresses += results(operands)
            elif not _USED.fullmatch(operation) and not _compares_with_null(operation, operands):
                return shown(statement)
    return ""


def _compares_with_null(operation: str, operands: str) -> bool:
    return _COMPARED.fullmatch(operation) is not None and operands.rpartition(",")[2].strip() == "0"
