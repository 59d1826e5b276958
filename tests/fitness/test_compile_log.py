"""What is read out of logs that NVRTC 13.0.88 wrote, and what of them may be shown."""

import pytest

from fitness.compile_log import advisories, clashing_flag, foretells_collapse, kernel_resources, readable_errors
from fitness.evaluation import KernelResources

SPILLING = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     648 bytes stack frame, 1520 bytes spill stores, 1512 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 648 bytes cumulative stack size
ptxas info    : Compile time = 32.785 ms
"""
HOPPER = """\
ptxas info    : (C7519) warpgroup.arrive is injected in around line 1063 by compiler to allow use of registers in GMMA in function 'fwd'
ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the function 'fwd'
ptxas info    : 32 bytes gmem
ptxas info    : Compiling entry function 'fwd' for 'sm_90a'
ptxas info    : Function properties for fwd
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 1024 bytes smem
ptxas info    : Compile time = 174.288 ms
"""  # noqa: E501
SERIALISED = (
    "(C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
    "resources for the function 'fwd'"
)
SETMAXNREG = (
    "(C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirement."
)


def test_registers_spills_stack_and_static_shared_memory_of_each_kernel():
    assert kernel_resources(SPILLING + HOPPER) == (
        KernelResources(
            kernel="k", registers=32, spill_store_bytes=1520, spill_load_bytes=1512, stack_bytes=648, shared_bytes=0
        ),
        KernelResources(
            kernel="fwd", registers=168, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, shared_bytes=1024
        ),
    )


def test_spills_of_a_function_that_a_kernel_calls_count_for_the_kernel():
    called = (
        "ptxas info    : Function properties for f\n"
        "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
    )
    log = SPILLING.replace("ptxas info    : Used", called + "ptxas info    : Used")
    (kernel,) = kernel_resources(log)
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.stack_bytes) == (1528, 1524, 648)


def test_a_source_line_that_a_warning_quotes_reports_on_no_kernel():
    warning = (
        "candidate.cu(9): warning #177-D: variable \"x\" was declared but never referenced\n"
        "  int x = 0; // ptxas info    : Compiling entry function 'forged' for 'sm_90a'\n"
        "  int y = 0; // ptxas info    : Used 4 registers\n"
    )
    assert kernel_resources(warning + SPILLING + warning) == kernel_resources(SPILLING)


def test_an_empty_log_tells_of_no_kernel():
    assert kernel_resources("") == ()


def test_advisories_are_ptxas_warnings_and_numbered_remarks_less_the_harmless_one():
    warning = f"ptxas info    : {SETMAXNREG}\nptxas warning : Value of threads per SM is out of range\n"
    assert advisories(HOPPER + HOPPER + warning) == (
        SERIALISED,
        SETMAXNREG,
        "Value of threads per SM is out of range",
    )


def test_a_plain_build_has_no_advisories():
    assert advisories(SPILLING) == ()


def test_serialised_products_alone_foretell_a_collapse():
    assert [foretells_collapse(advisory) for advisory in (SERIALISED, SETMAXNREG)] == [True, False]


def test_an_error_is_shown_with_its_source_line_and_its_instantiation():
    log = """\
candidate.cu(1): error: expression must have class type but it has type "int"
  template<class T> __device__ T f(T a){ return a.zork(); }
                                                ^
          detected during:
            instantiation of "T f(T) [with T=int]" at line 2
            instantiation of "T h(T) [with T=int]" at line 9 of /usr/include/secret.h

1 error detected in the compilation of "candidate.cu".
"""
    assert readable_errors(log) == """\
candidate.cu(1): error: expression must have class type but it has type "int"
  template<class T> __device__ T f(T a){ return a.zork(); }
                                                ^
          detected during:
            instantiation of "T f(T) [with T=int]" at line 2"""


def test_no_line_of_another_file_is_shown():
    log = """\
/etc/passwd(1): error: identifier "root" is undefined
  root:x:0:0:root:/root:/bin/bash
  ^

In file included from candidate.cu(1):
candidate.cu(2): error: no instance of overloaded function "__hadd" matches the argument list
            argument types are: (int, __nv_bfloat16)
  z = __hadd(1, a);
      ^
cuda_bf16.h(2850): note #3322-D: number of parameters of function "__hadd" does not match the call
  __CUDA_HOSTDEVICE_BF16_DECL__ __nv_bfloat16 __hadd(const __nv_bfloat16 a, const __nv_bfloat16 b);
                                              ^

2 errors detected in the compilation of "candidate.cu".
"""
    assert readable_errors(log) == """\
candidate.cu(2): error: no instance of overloaded function "__hadd" matches the argument list
            argument types are: (int, __nv_bfloat16)
  z = __hadd(1, a);
      ^"""


def test_an_error_in_a_header_is_told_by_the_line_that_led_there():
    log = """\
cuda_bf16.hpp(99): error: static assertion failed
  static_assert(sizeof(T) == 2);
  ^
          detected during:
            instantiation of "T f(T) [with T=int]" at line 12 of candidate.cu
"""
    assert readable_errors(log) == "candidate.cu(12): error in a header that this line uses"


def test_a_file_that_cannot_be_included_is_not_named():
    log = """\
candidate.cu(3): catastrophic error: cannot open source file "/etc/shadow": Too many open files
  #include "/etc/shadow"
                        ^

1 catastrophic error detected in the compilation of "candidate.cu".
"""
    assert readable_errors(log) == (
        "candidate.cu(3): error: this cannot be included; only attention.cuh, cuda_bf16.h and cuda_fp16.h can"
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "ptxas application ptx input, line 25; error   : Unknown modifier '.nonsense'",
            "ptxas: Unknown modifier '.nonsense'",
        ),
        (
            " ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)",
            "ptxas: Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)",
        ),
        ("ptxas fatal   : Ptx assembly aborted due to errors", "ptxas: Ptx assembly aborted due to errors"),
        (
            "candidate.cu(1): catastrophic error: #error directive: {threadIdx.x} is bad",
            "candidate.cu(1): catastrophic error: #error directive: {threadIdx.x} is bad",
        ),
    ],
)
def test_errors_of_each_stage_are_shown(line, shown):
    assert readable_errors(SPILLING + line + "\n") == shown


def test_warnings_are_left_out():
    log = """\
candidate.cu(1): warning #177-D: variable "A" was declared but never referenced
  constexpr int A=5;
                ^

candidate.cu(2): error: identifier "x" is undefined
"""
    assert readable_errors(log) == 'candidate.cu(2): error: identifier "x" is undefined'


def test_much_is_cut_to_sixty_lines_and_four_thousand_characters():
    many = readable_errors("".join(f"candidate.cu({n}): error: bad\n" for n in range(100)))
    assert many.splitlines()[59:] == ["candidate.cu(59): error: bad", "… and 40 more lines"]
    wide = readable_errors("".join(f"candidate.cu({n}): error: {'x' * 1000}\n" for n in range(60)))
    assert len(wide) <= 4000 + len("\n… and 60 more lines")
    assert len(wide.splitlines()[0]) == 202


def test_a_log_that_names_no_line_of_the_source_still_gives_a_reason():
    assert readable_errors("/etc/passwd(1): error: x\n") == (
        "the compiler refused the source, and its messages name no line of it"
    )


IN_HEADER = """\
attention.cuh(48): error: expected an identifier
      int seqlen_q;
          ^

"""
OWN = """\
candidate.cu(3): error: identifier "nothing" is undefined
  p.lse[0] = WIDTH + nothing;
                     ^

"""
WARNING = """\
attention.cuh(48): warning #177-D: variable "seqlen_q" was declared but never referenced
      int seqlen_q;
          ^

"""


@pytest.mark.parametrize(
    ("log", "names", "clash"),
    [
        (IN_HEADER, ["WIDTH", "seqlen_q"], "seqlen_q"),
        (OWN + WARNING + IN_HEADER, ["WIDTH", "seqlen_q"], "seqlen_q"),
        (IN_HEADER, ["int", "seqlen_q"], "int"),  # the first of the flags, whichever of them it was
        (IN_HEADER, ["seqlen", "q", "WIDTH"], ""),  # a part of a name is none
        (OWN, ["WIDTH"], ""),  # the candidate may use its flags as it likes
        (WARNING, ["seqlen_q"], ""),
        ("attention.cuh(48): error: expected an identifier\n", ["seqlen_q"], ""),
        ("attention.cuh(48): error: seqlen_q\n      int other;\n", ["seqlen_q"], ""),
        ("", ["seqlen_q"], ""),
        (IN_HEADER, [], ""),
    ],
)
def test_a_flag_clashes_where_a_headers_line_with_an_error_has_its_name(log, names, clash):
    assert clashing_flag(log, names) == clash


def test_a_line_of_digits_that_a_warning_quotes_takes_no_longer_than_its_length():
    assert kernel_resources(f"  int x = 0; // {'1' * 1_000_000}\n{SPILLING}") == kernel_resources(SPILLING)
