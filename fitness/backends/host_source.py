"""The text that g++ compiles for a candidate: its source, lightly rewritten, and an entry for each of its kernels.

Two things of CUDA cannot be said to g++ by a macro, so that their text changes (never its lines):
  extern __shared__ float tile[];   becomes a constant pointer to the runtime's array of dynamic shared memory
  #pragma unroll N                  becomes EVO_UNROLL(N), g++'s own pragma after N has been expanded
"""

import re
from collections.abc import Iterable
from pathlib import Path

from fitness.lexer import Kind, pieces

RUNTIME = Path(__file__).with_name("host")  # the headers that stand for CUDA
CANDIDATE_NAME = "candidate.cu"
ENTRIES_NAME = "entries"
DEFINES_NAME = "defines"  # a file of its own: a knob may have a name that our headers use
LEAVE_LOOP = 1  # for an unroll pragma without a number: g++ makes vector code of a loop, not of what it has peeled

_ALIGNMENT = (
    r"(?:(?:alignas|__align__)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
    r"|__attribute__\s*\(\((?:[^();]|\((?:[^();]|\([^();]*+\))*+\))*+\)\))"
)
# Possessive throughout, and no declaration runs into the next one: no text takes more than linear time.
_DYNAMIC_SHARED = re.compile(
    rf"\bextern\s++((?:{_ALIGNMENT}\s*+)*+)__shared__\s++((?:{_ALIGNMENT}\s*+)*+)"
    r"(?P<declared>[A-Za-z_](?:(?!\bextern\b)[\w:<>,\s])++)"
    r"\[\s*+\](?P<dimensions>(?:\s*+\[[^\[\];=]*+\])*+)\s*+;"
)
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*$", re.ASCII)
_UNROLL = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+(?P<no>no)?unroll\b[ \t]*(?P<times>\S[^\n]*)?$", re.MULTILINE)

_FORGET = 'extern "C" __attribute__((visibility("default"))) void evo_forget() { evo::forget(); }'


def host_source(source: str, kernels: Iterable[str]) -> str:
    """The translation unit of a candidate whose manifest launches `kernels`.

    Each has an entry `const char* evo_run_KERNEL(params, grid, block, shared_bytes, backwards, first, step)`, which
    runs the blocks first, first + step, … and gives null, or why it failed. `evo_forget()` clears
    the stacks of the threads, and what is noted of them. All that stands before the candidate's text, whose macros
    would change it, and so would the build's defines, which a file beside it holds.
    """
    code = "".join(_rewrite(piece.text) if piece.kind is Kind.CODE else piece.text for piece in pieces(source))
    entries = "\n".join(_entry(kernel) for kernel in dict.fromkeys(kernels))
    ours = f'#include "attention.cuh"\n#line 1 "{ENTRIES_NAME}"\n{_FORGET}\n{entries}\n#include "{DEFINES_NAME}"'
    return f'{ours}\nnamespace {{\n#line 1 "{CANDIDATE_NAME}"\n{code}\n}}\n'


def _rewrite(code: str) -> str:
    return _UNROLL.sub(_gcc_unroll, _DYNAMIC_SHARED.sub(_pointer, code))


def _pointer(match: re.Match[str]) -> str:
    declared, dimensions = match["declared"].rstrip(), match["dimensions"].strip()
    found = _NAME.search(declared)
    if found is None or not (element := declared[: found.start()].rstrip()):
        return match[0]
    name = found[0]
    pointed = f"{element} (*){dimensions}"
    pointer = f"{element} (* const {name}){dimensions} = reinterpret_cast<{pointed}>(evo::dynamic_shared);"
    return pointer + "\n" * (match[0].count("\n") - pointer.count("\n"))


def _gcc_unroll(match: re.Match[str]) -> str:
    return f"EVO_UNROLL({LEAVE_LOOP if match['no'] else match['times'] or LEAVE_LOOP})"


def _entry(kernel: str) -> str:
    # Declared with C linkage, before the candidate defines it: g++ then refuses one that is missing by name.
    return (
        f'namespace {{ extern "C" void {kernel}(AttentionParams); }}\n'
        f'extern "C" __attribute__((visibility("default"))) const char* evo_run_{kernel}(\n'
        "    const void* params, const unsigned* grid, const unsigned* block, unsigned shared_bytes, int backwards,\n"
        "    unsigned first, unsigned step) {\n"
        "    evo::Launch call = {params, grid, block, shared_bytes, backwards != 0, first, step};\n"
        f"    return evo::launch([] {{ {kernel}(evo::parameters<AttentionParams>()); }}, call);\n"
        "}"
    )
