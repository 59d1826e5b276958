"""What a kernel does with the variables that outlive a call, read off its PTX.

With `-default-device` even `constexpr int TILE = 128` at file scope becomes a variable in writable device memory, so
that its mere presence means nothing. What counts is whether code could write to it: whether it does anything with the
name but load from it.
"""

import re
from collections.abc import Iterator

# As ptxas cuts them: a string may run over lines, and no backslash keeps a quote from ending it.
_COMMENTS_AND_STRINGS = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STATEMENT = re.compile(r"[^;\s][^;]*+")  # empty ones may come by the million
_POINTER_PARAMETER = re.compile(r"\.ptr\s+\.\w+")  # `.param .u64 .ptr .global x` declares no variable
_DECLARATION = re.compile(r"(?<![\w.$%])\.(?:global|const)(?![\w.])")
_CONSTANT = re.compile(r"(?<![\w.$%])\.const(?![\w.])")
_DECLARED = re.compile(
    r"(?:\s+\.(?:align\s+\d+|v\d|[busfp]\w*))*\s+(?P<name>[\w$%]+)\s*(?:\[[^\]]*\]\s*)*(?:=(?P<value>.*))?", re.DOTALL
)
_LEAD = re.compile(r"(?:\s*[{}]|\s*[\w$%]+:(?!:)|\s*@!?[\w$%]+)*\s*")
_OPERATION = re.compile(r"[a-z][\w.:]*")
_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_$%][\w$]*")
_GENERIC = re.compile(r"(?<![\w.$%])generic\s*\(\s*([\w$%]+)")
_CONVERTED = re.compile(r"cvta\s*\.\s*const(?![\w$])")  # behind `.loc 1 2 3` too, which needs no semicolon and no space
_FUNCTION = re.compile(r"(?<![\w.$%])\.(?:entry|func)(?![\w.])")
_REGISTER = re.compile(r"(?<![A-Za-z_.$%])[A-Za-z_$%][\w$]*")
_NUMBER = re.compile(r"[0-9]+$")


def only_read(ptx: str) -> frozenset[str]:
    """The variables at file scope from which instructions load, and with which they do nothing else.

    A declaration that is written in an unusual way vouches for no variable, and so does one inside a function, which
    assembly alone can write: ptxas gives that another name, which some variable at file scope may have already.
    """
    declared: set[str] = set()
    exposed: set[str] = set()
    depth = 0
    for statement in statements(ptx):
        if declaration := _DECLARATION.search(statement):
            variable = _DECLARED.fullmatch(statement, declaration.end())
            if variable is None or depth + _opened(statement[: declaration.start()]) > 0:
                return frozenset()
            declared.add(variable["name"])
            exposed.update(_NAME.findall(variable["value"] or ""))  # another variable's address
        else:
            exposed.update(_exposed(statement))
        depth += _opened(statement)
    return frozenset(declared - exposed)


def addresses_constants(ptx: str) -> bool:
    """Whether anything takes a generic address of `__constant__` memory, through which it could be written."""
    constants: set[str] = set()
    addressed: set[str] = set()
    for statement in statements(ptx):
        if _CONVERTED.search(statement):
            return True
        addressed.update(_GENERIC.findall(statement))
        if declaration := _CONSTANT.search(statement):
            variable = _DECLARED.fullmatch(statement, declaration.end())
            if variable is None:
                return True
            constants.add(variable["name"])
    return not constants.isdisjoint(addressed)


def _opened(text: str) -> int:
    """How many braces are opened in a text and not closed."""
    return text.count("{") - text.count("}")


def statements(ptx: str) -> Iterator[str]:
    """The statements of a PTX text, without comments and with strings left out; a label or brace may lead one."""
    text = _POINTER_PARAMETER.sub(".ptr", _COMMENTS_AND_STRINGS.sub(" ", ptx))
    return (statement[0] for statement in _STATEMENT.finditer(text))


def _exposed(statement: str) -> list[str]:
    """The names that an instruction does more with than load from them."""
    operation, operands = instruction(statement)
    if not operation:
        return _NAME.findall(statement)
    return [] if operation.startswith("ld.") else _NAME.findall(operands)


def instruction(statement: str) -> tuple[str, str]:
    """An instruction's operation and operands; "" and "" for a directive, or a function's head before its first one."""
    start = _LEAD.match(statement)
    operation = _OPERATION.match(statement, start.end()) if start else None
    return (operation[0], statement[operation.end() :]) if operation else ("", "")


def functions(ptx: str) -> Iterator[list[str]]:
    """Statements function by function: registers go by the same names in each. A prototype inside one begins none."""
    found: list[str] = []
    depth = 0
    for statement in statements(ptx):
        head = _FUNCTION.search(statement)
        if head and found and depth + _opened(statement[: head.start()]) <= 0:
            yield found
            found = []
        found.append(statement)
        depth += _opened(statement)
    yield found


def registers(text: str) -> list[str]:
    """The names in a text, each register's in one form: to ptxas `%rd02` and `%rd4294967298` are `%rd2`."""
    return [_NUMBER.sub(_as_ptxas_counts, name) for name in _REGISTER.findall(text)]


def results(operands: str) -> list[str]:
    """The registers that an instruction writes: its first operand, or those of a vector in its place."""
    first = operands.lstrip()
    return registers(first[: first.find("}")] if first.startswith("{") else first.partition(",")[0])


def shown(statement: str) -> str:
    """A statement on one line, cut to 200 characters."""
    return " ".join(statement.split())[:200]


def _as_ptxas_counts(number: re.Match[str]) -> str:
    return str(int(number[0][-32:]) % 2**32)  # 10^32 is a multiple of 2^32: no digit before the last 32 counts
