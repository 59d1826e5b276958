"""The static rules: what a candidate's text may not hold, decided before anything is compiled.

The text is judged as the compiler's preprocessor sees it, with lines joined and comments gone. Whatever could make the
two readings differ (trigraphs, digraphs, raw strings, pasted tokens, odd line ends) is refused, not interpreted.
"""

import re
from dataclasses import dataclass

from fitness.faults import invalid
from fitness.kernel_declarations import KernelDeclaration, kernel_declarations
from fitness.lexer import Kind, check_size, pieces
from fitness.manifest import Manifest

INCLUDES = ("attention.cuh", "cuda_bf16.h", "cuda_fp16.h")
DIRECTIVES = ("define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "include", "pragma")
PRAGMAS = ("unroll", "nounroll")

# In the whole text, comments included, since these decide where lines and comments end.
_ODD_EVERYWHERE = (
    (re.compile(r"\r"), "a carriage return; lines end with a line feed alone"),
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"), "a control character"),
    (re.compile(r"\\[ \t]*\n"), "a backslash that compilers may or may not take to join two lines"),
    (re.compile(r"\?\?/"), "a trigraph"),
)
# Outside comments.
_ODD_IN_TEXT = (
    (re.compile(r"[^\x00-\x7f]"), "a character that is not ASCII, outside a comment"),
    (re.compile(r"\?\?[=/'()!<>-]"), "a trigraph"),
)
# Outside comments and literals.
_ODD_IN_CODE = (
    (re.compile(r"[\\$@`]"), "a character that stands in no C++ token"),
    (re.compile(r"%:"), "a digraph; write #"),
    (re.compile(r"##"), "the pasting of tokens; write them out, or use a template"),
    (re.compile(r"<<<"), "a launch from code; the manifest's [[launch]] entries launch kernels"),
)
_FORBIDDEN_WORDS = {
    "__has_include __has_include_next __has_embed": "a kernel may not look for files",
    "_Pragma __pragma": "pragmas are written as #pragma",
    "__FILE__ __FILE_NAME__ __BASE_FILE__ __INCLUDE_LEVEL__ __builtin_FILE": "a kernel may not see where its text lies",
    "__DATE__ __TIME__ __TIMESTAMP__": "a kernel may not depend on when it is compiled",
    "main __host__ constructor destructor __constructor__ __destructor__": "a candidate is device code only",
}
_ASSEMBLY = re.compile(r"_*asm_*")
# What could place a variable where the host compiler's check of writable data does not look, name the runtime's own
# (its macro for pragmas too), or reach stacks and registers that outlive a call.
_HOST_ESCAPES = re.compile(
    r"evo|EVO_(?!(?:BF16|FP16)$)\w*|runtime|dynamic_shared|gnu|__attribute(?:__)?|optind|opterr|optopt|environ|errno"
    r"|__dso_handle|__TMC_END__|_DYNAMIC|_GLOBAL_OFFSET_TABLE_"
    r"|mmap|mprotect|munmap|madvise|snprintf|sysconf|dl_iterate_phdr|__tls_get_addr|evo_\w+|(?:get|make|swap)context"
    r"|__builtin_(?:ia32|aarch64|arm)_\w+|__builtin_(?:setjmp|longjmp|apply\w*|return|thread_pointer|frame_address)"
    r"|__builtin_(?:return_address|unwind_init|eh_return)"
)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*([A-Za-z_]\w*)?(.*)", re.ASCII)
_INCLUDE = re.compile(r'"([^"]*)"|<([^<>]*)>')


@dataclass(frozen=True, kw_only=True)
class _Code:
    """A source as the preprocessor sees it: lines joined, each comment one blank."""

    bare: str  # all of it, every literal but "C" emptied
    directives: tuple[str, ...]  # the lines that begin with #, with their literals
    statements: str  # the other lines of `bare`


def check_rules(source: str, manifest: Manifest) -> None:
    """Return where the source keeps every rule. Raises CandidateFault (INVALID), which quotes what breaks one."""
    code = _read(source)
    for directive in code.directives:
        _check_directive(directive)
    _refuse(code.statements, ((re.compile("#"), "a # inside a line"),))
    _check_words(code.bare, portable=manifest.portable)
    _check_kernels(code.statements, manifest)
    if manifest.portable and manifest.tensor_maps:
        raise invalid("a portable kernel may not use [[tensor_map]]; remove it, or the target portable")


def _read(source: str) -> _Code:
    check_size(source)
    joined = source.replace("\\\n", "")
    _refuse(joined, _ODD_EVERYWHERE)
    text, bare = [], []
    for piece in pieces(joined):
        text.append(" " if piece.kind is Kind.COMMENT else piece.text)
        bare.append('""' if piece.kind is Kind.LITERAL and piece.text != '"C"' else text[-1])
    _refuse("".join(text), _ODD_IN_TEXT)
    _refuse("".join(bare), _ODD_IN_CODE)
    return _Code(
        bare="".join(bare),
        directives=tuple(line for line in "".join(text).split("\n") if _is_directive(line)),
        statements="\n".join(line for line in "".join(bare).split("\n") if not _is_directive(line)),
    )


def _refuse(text: str, odd: tuple[tuple[re.Pattern[str], str], ...]) -> None:
    for pattern, meaning in odd:
        if match := pattern.search(text):
            line_start, end = text.rfind("\n", 0, match.start()) + 1, match.end()
            raise invalid(f"{text[max(line_start, end - 40) : end]!r} ends in {meaning}; that is not allowed")


def _is_directive(line: str) -> bool:
    return line.lstrip(" \t").startswith("#")


def _check_directive(line: str) -> None:
    match = _DIRECTIVE.fullmatch(line)
    name, rest = (match[1] or "", match[2].strip()) if match else ("", "")
    if name not in DIRECTIVES:
        raise invalid(f"the directive {_shown(line)} is not allowed; expected one of #{', #'.join(DIRECTIVES)}")
    if name == "include":
        included = _INCLUDE.fullmatch(rest)
        if not included or (included[1] or included[2]) not in INCLUDES:
            raise invalid(f"{_shown(line)} is not allowed; a kernel may include {', '.join(INCLUDES)} only")
    if name == "pragma" and _WORD.findall(rest)[:1] not in ([pragma] for pragma in PRAGMAS):
        raise invalid(f"{_shown(line)} is not allowed; expected one of #pragma {', '.join(PRAGMAS)}")


def _check_words(bare: str, *, portable: bool) -> None:
    words = set(_WORD.findall(bare))
    for forbidden, reason in _FORBIDDEN_WORDS.items():
        if found := words.intersection(forbidden.split()):
            raise invalid(f"{min(found)} is not allowed: {reason}")
    if portable and (assembly := next((word for word in sorted(words) if _ASSEMBLY.fullmatch(word)), "")):
        raise invalid(f"{assembly} is not allowed in a portable kernel; remove it, or the target portable")
    if portable and (escape := next((word for word in sorted(words) if _HOST_ESCAPES.fullmatch(word)), "")):
        raise invalid(f"{escape} is not allowed in a portable kernel: it could keep state where nobody looks")


def _check_kernels(statements: str, manifest: Manifest) -> None:
    declarations = kernel_declarations(statements)
    declared, launched = ({kernel.name for kernel in declarations}, {launch.kernel for launch in manifest.launches})
    if missing := launched - declared:
        others = _shown(", ".join(sorted(declared)) or "none")
        raise invalid(f'no kernel {min(missing)} is declared as extern "C" __global__; declared: {others}')
    expected = ("AttentionParams", *["TensorMap"] * len(manifest.tensor_maps))
    for kernel in declarations:
        if kernel.name in launched:
            _check_declaration(kernel, expected)


def _check_declaration(kernel: KernelDeclaration, expected: tuple[str, ...]) -> None:
    if not kernel.c_linkage or kernel.template:
        raise invalid(f'the kernel {kernel.name} must be declared extern "C", and be no template')
    if kernel.parameter_types != expected:
        wanted = ", ".join(f"const __grid_constant__ {name}" for name in expected)
        came = _shown(", ".join(kernel.parameter_types))
        raise invalid(f"the kernel {kernel.name} takes {came}; expected ({wanted}), a map for each [[tensor_map]]")


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 80 else text[:80] + "…")
