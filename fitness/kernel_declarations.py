"""The kernels that a candidate's text declares, found without compiling it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LANDMARK = re.compile(r'extern\s*"C"\s*\{|[{};]|\b__global__\b')
_LEXEME = re.compile(r"[A-Za-z_]\w*|\S", re.ASCII)
_TEMPLATE = re.compile(r"\btemplate\b")
_C_LINKAGE = re.compile(r'\bextern\s*"C"')
# Words that stand before a kernel's name and take arguments of their own.
_ATTRIBUTES = frozenset(
    ("__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__", "__attribute__", "alignas")
)
_QUALIFIERS = frozenset(("const", "__grid_constant__"))


@dataclass(frozen=True, kw_only=True)
class KernelDeclaration:
    """One `__global__` function as it is declared; a kernel may be declared more than once."""

    name: str
    c_linkage: bool
    template: bool
    parameter_types: tuple[str, ...]  # without const and __grid_constant__; with anything else that is written there


def kernel_declarations(code: str) -> tuple[KernelDeclaration, ...]:
    """The kernels declared in code that holds no comments, no directives, and of the literals only "C".

    Reads each declaration once, up to its body, so that no text takes more than linear time.
    """
    found = []
    for specifiers, rest, in_c_block in _global_functions(code):
        name, parameters = _declarator(rest)
        if name:
            found.append(
                KernelDeclaration(
                    name=name,
                    c_linkage=in_c_block or bool(_C_LINKAGE.search(specifiers)),
                    template=bool(_TEMPLATE.search(specifiers)),
                    parameter_types=_types(parameters),
                )
            )
    return tuple(found)


def _global_functions(code: str) -> Iterator[tuple[str, str, bool]]:
    """For each declaration with `__global__`: what stands before and after it, and whether an extern "C" block does."""
    blocks: list[bool] = []  # the open braces: whether each is that of extern "C"
    start, before = 0, None  # where the declaration began, and where its first __global__ stands
    for landmark in _LANDMARK.finditer(code):
        mark = landmark[0]
        if mark == "__global__":
            before = landmark.start() if before is None else before
            continue
        if before is not None:
            yield code[start:before], code[before + len("__global__") : landmark.start()], any(blocks)
        if mark == "}":
            del blocks[-1:]
        elif mark != ";":
            blocks.append(mark != "{")
        start, before = landmark.end(), None


def _declarator(rest: str) -> tuple[str, list[str]]:
    """A function's name and the words and marks of its parameters; "" where there is none."""
    last, owner, depth = "", "", 0  # the last word outside parentheses, and the one that the open ones belong to
    parameters: list[str] = []
    for lexeme in _LEXEME.findall(rest):
        depth -= lexeme == ")"
        if depth == 0 and lexeme == ")" and owner not in _ATTRIBUTES:
            return owner, parameters
        if depth == 0:
            owner, last = last, lexeme
        elif owner not in _ATTRIBUTES:
            parameters.append(lexeme)
        depth += lexeme == "("
    return "", []


def _types(parameters: list[str]) -> tuple[str, ...]:
    """Each parameter's type, without its qualifiers and its name."""
    types = []
    for parameter in " ".join(parameters).split(",") if parameters else []:
        words = [word for word in parameter.split() if word not in _QUALIFIERS]
        named = len(words) > 1 and words[-1].isidentifier()
        types.append(" ".join(words[:-1] if named else words))
    return tuple(types)
