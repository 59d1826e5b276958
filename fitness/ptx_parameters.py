"""Whether a kernel could write to the parameters of its own launch, read off its PTX.

They are read-only by the language, but an instruction that makes a plain address of one makes plain stores possible,
and the next replay of the launch finds what was stored (measured on an H200, driver 580). Kernels need such addresses
for one thing: a tensor map, which is a parameter, is named to the copy engine by its address. So what becomes of an
address is followed from register to register, and it may go nowhere else.
"""

import re
from collections.abc import Iterator

from fitness.ptx import instruction, statements

_FUNCTION = re.compile(r"(?<![\w.$%])\.(?:entry|func)(?![\w.])")
_TAKEN = re.compile(r"(?<![\w.$%])cvta\s*\.\s*param(?![\w$])")
_ASKED = re.compile(r"(?<![\w.$%])isspacep\s*\.\s*param(?![\w$])")  # tells of any address whether it is one
_TAKEN_PLAINLY = re.compile(r"cvta\.param(?:::entry)?\.u64")
_REGISTER = re.compile(r"(?<![\w.$%])[A-Za-z_$%][\w$]*")
_PASSED_ON = re.compile(r"(?:mov|selp)\.[bsu]64|add\.[su]64")  # no flag and no predicate comes of them
_REGISTERS_DECLARED = re.compile(r"[\s{}]*\.reg\s+\.[\w.]+\s++[\w$%<>,\s]+")  # blanks may come by the million
_USED = re.compile(
    r"(?:cp\.async\.bulk\.tensor|cp\.async\.bulk\.prefetch\.tensor|cp\.reduce\.async\.bulk\.tensor|ld)\..*"
    r"|prefetch\.(?:param\.)?tensormap"
)


def writable_parameters(ptx: str) -> str:
    """The first instruction by which a parameter's address leaves what may be done with it; "" where none does."""
    return next(filter(None, map(_astray, _functions(ptx))), "")


def _functions(ptx: str) -> Iterator[list[str]]:
    """Statements function by function: registers go by the same names in each."""
    found: list[str] = []
    for statement in statements(ptx):
        if _FUNCTION.search(statement) and found:
            yield found
            found = []
        found.append(statement)
    yield found


def _astray(function: list[str]) -> str:
    if not any(_TAKEN.search(statement) or _ASKED.search(statement) for statement in function):
        return ""
    addresses: list[str] = []
    users: dict[str, list[str]] = {}
    for statement in function:
        operation, operands = instruction(statement)
        names = _REGISTER.findall(operands if operation else statement)
        if _TAKEN_PLAINLY.fullmatch(operation) and names:
            addresses.append(names[0])
        elif _ASKED.search(statement) or _TAKEN.search(statement):
            return _shown(statement)
        elif not _REGISTERS_DECLARED.fullmatch(statement):
            for name in names:
                users.setdefault(name, []).append(statement)
    while addresses:
        for statement in users.pop(addresses.pop(), []):
            operation, operands = instruction(statement)
            if _PASSED_ON.fullmatch(operation):
                addresses += _results(operands)
            elif not _USED.fullmatch(operation):
                return _shown(statement)
    return ""


def _results(operands: str) -> list[str]:
    """The registers that an instruction writes: its first operand, or those of a vector in its place."""
    first = operands.lstrip()
    return _REGISTER.findall(first[: first.find("}")] if first.startswith("{") else first.partition(",")[0])


def _shown(statement: str) -> str:
    return " ".join(statement.split())[:200]
