"""The static rules: every spelling of what they refuse, and what they must let through."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.lexer import MAX_SOURCE_BYTES
from fitness.manifest import LaunchSpec, Manifest, TensorMapSpec
from fitness.rules import check_rules

LAUNCH = LaunchSpec(kernel="f", grid=("1", "1", "1"), block=("32", "1", "1"))
PORTABLE = Manifest(
    contract=1, name="n", targets=("portable",), supports="1", knobs=(), defines=(),
    tensor_maps=(), workspaces=(), launches=(LAUNCH,),
)  # fmt: skip
HOPPER = replace(PORTABLE, targets=("sm_90a",))
MAP = TensorMapSpec(tensor="q", box=("64", "1", "64", "1"), swizzle="128")
KERNEL = '\nextern "C" __global__ void f(const __grid_constant__ AttentionParams params) {}\n'


def reason_of(source: str, manifest: Manifest = HOPPER) -> str:
    with pytest.raises(CandidateFault) as caught:
        check_rules(source, manifest)
    assert caught.value.status is Status.INVALID
    assert len(caught.value.reason) < 1000
    return caught.value.reason


def keeps_the_rules(source: str, manifest: Manifest = HOPPER) -> bool:
    try:
        check_rules(source, manifest)
    except CandidateFault:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        '#include "attention.cuh"\n#include <cuda_bf16.h>\n#include "cuda_fp16.h"',
        '  #  include   "attention.cuh"   // the contract\n/* a\n * comment */ #include <cuda_fp16.h> /* again */',
        '#inc\\\nlude "attention.cuh"',
        '#if HEAD_DIM == 64 && defined(EVO_BF16)\n#elif 1\n#else\n#error "no such head_dim"\n#endif',
        "#ifndef A\n#define A\n#endif",
        "#define STEP(a, b) { \\\n  a += b; \\\n}\n#undef STEP\n#define NAME(x) #x",
        "#ifdef A\n#endif\n#pragma unroll\n#pragma unroll 4\n#pragma unroll(8)\n# pragma  nounroll",
        "// été “quoted” ##, #include <x>, %:, <<<, asm, main, \\ and R\"( in a comment, don't mind",
        "/* ???, ??) and 'apostrophes\n#include <x>\n*/",
        'const char* s = "#include <x> // /* ## %: <<< main asm __FILE__ \\" \\\\";',
        "char c = '\"', d = '\\'', e = '#', f = u8'/';",
        "float x = 1e+5f + .5e-3f + 0x1p+3; int y = a / b; y /= 2;",
        "int main_loop, my_main, asmx, hash;  int z = x < y; int w = x << 2 >> 1; bool t = a ? b : c ? d : e;",
        "template <typename T, int N = 4> struct S { T x[N]; };\ntypedef S<S<int>> Pair;",
        "__device__ __forceinline__ float g(float x) { return x; }",
        'asm volatile("{ .reg .pred p; %0 }" :: "r"(1));',
    ],
)
def test_what_kernels_need_is_allowed(text):
    assert keeps_the_rules(text + KERNEL)


EVIL = [
    "#include <cstdio>",
    "#include <cutlass/cutlass.h>",
    '#include "/etc/passwd"',
    '#include "../attention.cuh"',
    '#include "./attention.cuh"',
    "#include <attention.cuh >",
    "#include <cuda_bf16.h> <cuda.h>",
    '#include "attention.cuh',
    "#include",
    "#define WHICH <cstdio>\n#include WHICH",
    "#include WHICH(cuda_bf16.h)",
    "#inc\\\nlude <cstdio>",
    "#\\\ninclude <cstdio>",
    "\\\n#include <cstdio>",
    "#inc\\\\\n\nlude <cstdio>",
    "#inc\\ \nlude <cstdio>",
    "#inc\\\t\nlude <cstdio>",
    "#inc\\\r\nlude <cstdio>",
    "# /* */ include <cstdio>",
    "/* */ # /* \n */ include /* */ <cstdio>",
    "#/**/include/**/<cstdio>",
    "#include <cuda_/**/bf16.h>",
    "#include <cuda_bf16.h//>",
    "%:include <cstdio>",
    "%\\\n:include <cstdio>",
    "??=include <cstdio>",
    "??/\n#include <cstdio>",
    "// what??/\n#include <cstdio>",
    "#include_next <cuda_bf16.h>",
    "#import <cuda_bf16.h>",
    "#embed <cuda_bf16.h>",
    "#if __has_include(<cstdio>)\n#endif",
    "#if __has_\\\ninclude(<cstdio>)\n#endif",
    "#define H(a, b) a##b\n#if H(__has_, include)(<cstdio>)\n#endif",
    "#if 0\n#include <cstdio>\n#endif",
    "\f#include <cstdio>",
    "#\vinclude <cstdio>",
    "\x00#include <cstdio>",
    "// x\r#include <cstdio>",
    "\ufeff#include <cstdio>",
    "\x1a#include <cstdio>",
    'R"(\n)"\n#include <cstdio>',
    'u8R"x(/*)x"\n#include <cstdio>\n//*/',
    # What a reader must not take for the beginning of a comment that hides the next line.
    "// \\ \n/*\n#include <cstdio>\n//*/",
    "// \\\\\n\n/*\n#include <cstdio>\n//*/",
    "int $1'a\"' \"/*\";\n#include <cstdio>\n//*/",
    "int \\u00e91'a\"' \"/*\";\n#include <cstdio>\n//*/",
    "int é1'a\"' \"/*\";\n#include <cstdio>\n//*/",
    "int a = 1'\"' /*\";\n#include <cstdio>\n//*/",
    "int a = 0x1e+'a\"' /*\";\n#include <cstdio>\n//*/",
    "#error don't\n/*'\n#include <cstdio>\n//*/",
    "#if 0\n\" /*\n#endif\n#include <cstdio>\n//*/",
    "#include </*>\n#include <cstdio>\n//*/>",
]


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("before", ["", KERNEL])
def test_an_include_in_any_spelling_is_refused(text, before):
    assert reason_of(before + text + "\n" + ("" if before else KERNEL))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("#include <cstdio>", "'#include <cstdio>' is not allowed; a kernel may include attention.cuh, cuda_bf16.h"),
        ("#line 3", "the directive '#line 3' is not allowed; expected one of #define, #undef"),
        ('# 1 "file"', "the directive '# 1 \"file\"' is not allowed"),
        ("#", "the directive '#' is not allowed"),
        ('#ident "x"', "is not allowed"),
        ("#warning x", "is not allowed"),
        ("#pragma GCC optimize(3)", "expected one of #pragma unroll, nounroll"),
        ("#pragma", "expected one of #pragma unroll"),
        ("#pragma once", "expected one of #pragma unroll"),
        ('#pragma push_macro("A")', "expected one of #pragma unroll"),
        ('_Pragma("once")', "_Pragma is not allowed: pragmas are written as #pragma"),
        ("int x; #define Y", "ends in a # inside a line"),
        ("#define P(a, b) a ## b", "the pasting of tokens"),
        ("#define P(a, b) a #\\\n# b", "the pasting of tokens"),
        ("#define P(a, b) a %:%: b", "a digraph"),
        ('const char* s = __FILE__;', "__FILE__ is not allowed: a kernel may not see where its text lies"),
        ("const char* s = __FI\\\nLE__;", "__FILE__ is not allowed"),
        ("const char* s = __builtin_FILE();", "__builtin_FILE is not allowed"),
        ("const char* s = __TIME__;", "when it is compiled"),
        ("int main() {}", "main is not allowed: a candidate is device code only"),
        ("__host__ void g() {}", "__host__ is not allowed"),
        ("__attribute__((constructor)) void g() {}", "constructor is not allowed"),
        ("void g() { f<<<1, 1>>>(p); }", "a launch from code"),
        ('auto s = R"(x)";', "raw string literals are not allowed"),
        ("int x = 1'000;", "an apostrophe may not follow a number; write 1000"),
        ("/* open", "this comment or literal has no end"),
        ('const char* s = "open', "this comment or literal has no end"),
        ("char c = 'open", "this comment or literal has no end"),
        ("int x;\r\n", "a carriage return"),
        ("int x;\f", "a control character"),
        ("// \x00", "a control character"),
        ("// \ud800", "a control character"),
        ("int \u00a0x;", "a character that is not ASCII, outside a comment"),
        ('const char* s = "é";', "a character that is not ASCII, outside a comment"),
        ("int x\u200b;", "a character that is not ASCII"),
        ("int $x;", "a character that stands in no C++ token"),
        ("int \\u0061;", "a character that stands in no C++ token"),
        ("int a??(1??);", "a trigraph"),
        ("#define A \\ \n1", "a backslash that compilers may or may not take"),
        ("int x;\\", "a character that stands in no C++ token"),
    ],
)
def test_refusal(text, part):
    assert part in reason_of(KERNEL + text)


@pytest.mark.parametrize("spelling", ["asm", "__asm", "__asm__", "_asm", "a\\\nsm", "a\\\n\\\nsm", "/**/asm"])
@pytest.mark.parametrize("frame", ['{} volatile("x");', '{}("x");', "#define A {}\nA", "#if 0\n{}\n#endif"])
def test_assembly_in_a_portable_kernel(spelling, frame):
    text = frame.format(spelling) + KERNEL
    assert "is not allowed in a portable kernel" in reason_of(text, PORTABLE)
    assert keeps_the_rules(text)


def test_assembly_that_is_pasted_together():
    assert "the pasting of tokens" in reason_of('#define P(a, b) a##b\nP(as, m)("x");' + KERNEL, PORTABLE)


def test_a_kernel_with_the_portable_target_beside_others_is_portable():
    assert "asm" in reason_of('asm("x");' + KERNEL, replace(PORTABLE, targets=("sm_90a", "portable")))


def test_tensor_maps_in_a_portable_kernel():
    kernel = KERNEL.replace("params)", "params, const __grid_constant__ TensorMap map)")
    assert "may not use [[tensor_map]]" in reason_of(kernel, replace(PORTABLE, tensor_maps=(MAP,)))
    assert keeps_the_rules(kernel, replace(HOPPER, tensor_maps=(MAP,)))


@pytest.mark.parametrize(("size", "good"), [(MAX_SOURCE_BYTES, True), (MAX_SOURCE_BYTES + 1, False)])
def test_size_is_counted_in_bytes_before_lines_are_joined(size, good):
    padding = size - len(KERNEL) - len("//\\\n")
    source = KERNEL + "//\\\n" + "é" * (padding // 2) + "x" * (padding % 2)
    assert len(source.encode()) == size
    assert keeps_the_rules(source) is good
    if not good:
        assert f"the source has {size} bytes; at most {MAX_SOURCE_BYTES}" in reason_of(source)


SPLICE = st.lists(st.sampled_from(["\\\n", "\\\n\\\n", "\\ \n", "\\\r\n"]), max_size=1).map("".join)
BLANK = st.sampled_from([" ", "\t", "/* x */", "/*\n*/", "\\\n", " \\\n /**/ ", ""])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_include_with_splices_and_comments_anywhere_is_refused(data):
    mark = data.draw(st.sampled_from(["#", "%:", "??=", "#\\\n"]))
    word = "".join(data.draw(SPLICE) + letter for letter in "include")
    text = data.draw(BLANK) + mark + data.draw(BLANK) + word + data.draw(BLANK) + "<cstdio>\n"
    assert not keeps_the_rules(KERNEL + text)
    assert not keeps_the_rules(text + KERNEL)


NASTY = st.sampled_from(
    [
        *['"', "'", "/*", "*/", "//", "\\", "\\\n", "\n", "#", "##", 'R"(', ')"', "1'0"],
        *"{}();$ ",
        *["é", "\x00", "\ud800", "asm", "include", "<x>", "#define A ", "#include "],
        *["__global__", 'extern "C" {', "template", "void f"],
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(NASTY, max_size=40).map("".join)))
def test_any_text_is_judged(text):
    assert keeps_the_rules(text) is False  # it would have to hold the kernel
    assert keeps_the_rules(KERNEL + text) in (True, False)


@pytest.mark.parametrize(
    "unit",
    [
        *"a/'\"\\#{}(;é$\n 1",
        *["/*", "//", "//\n", '""', "''", '"\\', "\\\n", "\\ ", "#\n", "%", "??", "(a", "{}", "a ", "#define a\n"],
        *["__global__ ", "__global__ f(", "__global__ f();", 'extern "C" {', 'extern "C" ', "extern ", "template "],
    ],
)
def test_a_large_hostile_text_is_judged(unit):
    text = unit * ((MAX_SOURCE_BYTES - len(KERNEL)) // len(unit.encode()))
    assert keeps_the_rules(KERNEL + text) in (True, False)
    assert not keeps_the_rules(text)


@pytest.mark.parametrize(
    "word",
    [
        *["evo::x", '__attribute__((section("kept")))', "[[gnu::used]]", "optind", "errno"],
        *['EVO_PRAGMA(GCC dependency "/etc/passwd")', "EVO_UNROLL(2)", "EVO_BF16X"],
        *["__builtin_ia32_stmxcsr()", "__builtin_setjmp(b)", "__builtin_frame_address(0)"],
    ],
)
def test_a_portable_kernel_may_not_name_what_could_keep_state_for_it(word):
    text = f"int x = {word};{KERNEL}"
    assert "it could keep state where nobody looks" in reason_of(text, PORTABLE)
    assert keeps_the_rules(text.replace("$", ""), HOPPER)


@pytest.mark.parametrize("word", ["EVO_BF16", "EVO_FP16", "__builtin_expect(1, 1)"])
def test_a_portable_kernel_may_ask_for_its_element_type_and_expect(word):
    assert keeps_the_rules(f"const int x = {word};{KERNEL}", PORTABLE)
