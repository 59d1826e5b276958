"""What a kernel does with the variables that outlive a call, read off its PTX.

With `-default-device` even `constexpr int TILE = 128` at file scope becomes a variable in writable device memory, so
that its mere presence means nothing. What counts is whether code could write to it: whether it does anything with the
name but load from it.
"""

import re

_COMMENTS_AND_STRINGS = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_POINTER_PARAMETER = re.compile(r"\.ptr\s+\.\w+")  # `.param .u64 .ptr .global x` declares no variable
_DECLARATION = re.compile(r"(?<![\w.$%])\.(?:global|const)(?![\w.])")
_DECLARED = re.compile(
    r"(?:\s+\.(?:align\s+\d+|v\d|[busfp]\w*))*\s+(?P<name>[\w$%]+)\s*(?:\[[^\]]*\]\s*)*(?:=(?P<value>.*))?", re.DOTALL
)
_LEAD = re.compile(r"(?:\s*[{}]|\s*[\w$%]+:(?!:)|\s*@!?[\w$%]+)*\s*")
_OPERATION = re.compile(r"[a-z][\w.:]*")
_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_$][\w$]*")


def only_read(ptx: str) -> frozenset[str]:
    """The variables at file scope from which instructions load, and with which they do nothing else.

    A declaration that is written in an unusual way vouches for no variable.
    """
    declared: set[str] = set()
    exposed: set[str] = set()
    for statement in _statements(ptx):
        if declaration := _DECLARATION.search(statement):
            variable = _DECLARED.fullmatch(statement, declaration.end())
            if variable is None:
                return frozenset()
            declared.add(variable["name"])
            exposed.update(_NAME.findall(variable["value"] or ""))  # another variable's address
        else:
            exposed.update(_exposed(statement))
    return frozenset(declared - exposed)


def addresses_constants(ptx: str) -> bool:
    """Whether a kernel takes a generic address of `__constant__` memory, through which it could be written."""
    return any("cvta.const" in statement for statement in _statements(ptx))


def _statements(ptx: str) -> list[str]:
    text = _COMMENTS_AND_STRINGS.sub(" ", ptx)
    return _POINTER_PARAMETER.sub(".ptr", text).split(";")


def _exposed(statement: str) -> list[str]:
    """The names that an instruction does more with than load from them."""
    start = _LEAD.match(statement)
    operation = _OPERATION.match(statement, start.end()) if start else None
    if operation is None:  # a directive, or the head of a function with its first statement
        return _NAME.findall(statement)
    if operation[0].startswith("ld."):
        return []
    return _NAME.findall(statement, operation.end())
