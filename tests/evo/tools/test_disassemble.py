"""Listings of disassemblers, read and shown. The processor's disassembler is the real one, on a real shared object."""

import shutil
import subprocess
from pathlib import Path

import pytest
from drafts import compiled, judge_of, resources
from small_records import failed

from evo.tools.disassemble import Disassemble, read_listing
from fitness.evaluation import Evaluation, Status
from fitness.evaluator import Compiled

NOT_JUDGED = failed("draft", Status.INVALID, "not judged")
SASS = """
\tcode for sm_90a
\t\tFunction : attention_forward
\t.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;              /* 0x00000a00ff017b82 */
                                                                       /* 0x000fe20000000800 */
        /*0010*/              @!P2 BRA 0xf40 ;                         /* 0x000000000064a947 */
        /*0020*/                   HMMA.16816.F32.BF16 R136, R156.reuse, R152, RZ ;   /* 0x000000989c88723c */
        /*0030*/             @UP0  UIADD3 UR4, UR8, 0x7f, URZ ;        /* 0x0000007f08047890 */
"""


def test_a_sass_listing_is_places_and_instructions():
    assert read_listing(SASS) == [
        ("0000", "LDC R1, c[0x0][0x28]"),
        ("0010", "@!P2 BRA 0xf40"),
        ("0020", "HMMA.16816.F32.BF16 R136, R156.reuse, R152, RZ"),
        ("0030", "@UP0 UIADD3 UR4, UR8, 0x7f, URZ"),
    ]


def native(builds: Evaluation | Compiled | None) -> Disassemble:
    return Disassemble(judge_of(NOT_JUDGED, builds), program=shutil.which("objdump"), on_gpu=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    source, library = folder / "draft.cc", folder / "draft.so"
    additions = "\n".join(f'asm volatile("addl ${number}, %eax");' for number in range(300))
    source.write_text(f'extern "C" void attention_forward() {{ {additions} }}\nextern "C" void other() {{}}\n')
    subprocess.run([shutil.which("g++") or "g++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def test_counts_come_first_and_the_code_is_cut(library):
    tool = native(compiled(resources(), binary=library))
    head, counts, first, *rest, last = tool.call("draft", {}).splitlines()
    assert head == "attention_forward, element=bf16"
    total = int(counts.partition(" ")[0])
    assert total > 300
    assert f"{total} instructions: add 300, " in counts.replace("addl", "add")
    assert first.split()[1:]
    assert len(rest) == 249
    assert last == f"({total - 250} more from instruction 250 on)"
    later = tool.call("draft", {"first": 250}).splitlines()
    assert len(later) == 2 + total - 250
    assert later[1] == counts
    assert tool.call("draft", {"first": 10**9}).splitlines() == [head, counts]
    assert tool.call("draft", {"first": -1}).splitlines()[2] == first


def test_a_kernel_or_build_that_is_not_there_is_told_of_those_that_are(library):
    draft = compiled(resources(), resources("join"), binary=library)
    tool = native(draft)
    there = "the kernels are attention_forward, join, the builds element=bf16"
    assert tool.call("draft", {"kernel": "fast"}) == f"there is no fast in element=bf16; {there}"
    assert tool.call("draft", {"build": "big"}) == f"there is no attention_forward in big; {there}"
    assert tool.call("draft", {"kernel": "join"}).startswith("not available: ")


def test_what_does_not_compile_has_no_code():
    refused = native(failed("draft", Status.COMPILE_ERROR, "line 1: error"))
    assert refused.call("draft", {}) == "COMPILE_ERROR: line 1: error"
    assert native(None).call("draft", {}) == "not available: nothing is compiled on this backend"


@pytest.fixture
def cuobjdump(tmp_path):
    """A stand-in that shows the listing above of one kernel, and says what it was asked."""
    script = tmp_path / "cuobjdump"
    script.write_text(f"#!/bin/sh\ntest \"$3\" = attention_forward && cat <<'END'\n{SASS}\nEND\necho asked $*\n")
    script.chmod(0o755)
    return str(script)


def test_cuobjdump_is_asked_for_one_kernel_of_the_build(cuobjdump):
    judge = judge_of(NOT_JUDGED, compiled(resources(), resources("join"), binary=Path("/x/draft.cubin")))
    tool = Disassemble(judge, program=cuobjdump, on_gpu=True)
    assert tool.call("draft", {}).splitlines() == [
        "attention_forward, element=bf16",
        "4 instructions: LDC 1, BRA 1, HMMA 1, UIADD3 1",
        *(f"{place} {text}" for place, text in read_listing(SASS)),
    ]
    told = tool.call("draft", {"kernel": "join"})
    assert told == f"not available: {cuobjdump} shows no code of join: asked --dump-sass --function join /x/draft.cubin"


@pytest.mark.parametrize(("on_gpu", "name"), [(True, "cuobjdump"), (False, "objdump")])
def test_without_a_disassembler_one_line_says_so(on_gpu, name):
    tool = Disassemble(judge_of(NOT_JUDGED, compiled(resources())), program=None, on_gpu=on_gpu)
    assert tool.call("draft", {}) == f"not available: {name} is not on the PATH"


def test_a_disassembler_that_does_not_start_is_a_reason(tmp_path):
    tool = Disassemble(judge_of(NOT_JUDGED, compiled(resources())), program=str(tmp_path / "none"), on_gpu=True)
    assert "No such file" in tool.call("draft", {})
