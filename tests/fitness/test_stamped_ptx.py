"""Where stamps go in PTX, and that what NVRTC makes of shipped kernels still assembles with them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from evo.suites import load_suite
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.fork_server import start_fork_server
from fitness.manifest import read_manifest
from fitness.planner import plan_builds
from fitness.stamped_ptx import MOST_SMS, STAMPS, WORDS, stamp

ROOT = Path(__file__).parents[2]
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
BEGIN = re.compile(r"red\.global\.min\.u64 \[%evo_place\+0\]")
DONE = re.compile(r"red\.global\.max\.u64 \[%evo_place\+8\]")


def entry(body, name="k"):
    return f"{HEAD}\n.visible .entry {name}(\n\t.param .u64 {name}_param_0\n)\n.maxntid 128, 1, 1\n{{\n{body}\n}}\n"


def stamps(ptx):
    """The text with each stamp as one word, less the array of stamps."""
    text = re.sub(r"\{  // the lowest[^}]*\.(min|max)\.u64[^}]*\}", lambda found: f"<{found[1]}>", stamp(ptx).text)
    return " ".join(text.replace(f".visible .global .align 32 .b64 {STAMPS}[{MOST_SMS * WORDS}];", "").split())


def body(ptx):
    return stamps(entry(ptx)).split("128, 1, 1 ", 1)[1]


def test_a_kernel_is_stamped_behind_its_declarations_and_before_its_end():
    assert body(".reg .pred %p<2>;\n.shared .align 16 .b8 s[64];\nmov.u32 %r1, %tid.x;\nret;") == (
        "{ .reg .pred %p<2>; .shared .align 16 .b8 s[64]; <min> mov.u32 %r1, %tid.x; <max> ret; }"
    )


def test_a_stamp_tells_the_clocks_by_one_lane_of_the_warp():
    text = stamp(entry("ret;")).text
    assert len(BEGIN.findall(text)) == len(DONE.findall(text)) == 1
    assert text.count("@%evo_speaks red.global.min.u64") == text.count("@%evo_speaks red.global.max.u64") == 2
    assert text.count("%clock64") == text.count("%globaltimer") == text.count("%smid") == 2
    assert text.count("activemask.b32") == text.count("%lanemask_lt") == 2
    assert ".visible .global .align 32 .b64 evo_stamps[4096];" in text


def test_every_end_is_stamped_and_under_a_predicate_only_for_those_that_end():
    assert body("@%p1 ret;\n@!%p2 exit;\nL1:\nexit;\n{\n@p ret.uni; }\nret;") == (
        "{ <min> @!%p1 bra $evo_over_0; <max> ret; $evo_over_0: @%p2 bra $evo_over_1; <max> exit; $evo_over_1: "
        "L1: <max> exit; { @!p bra $evo_over_3; <max> ret; $evo_over_3: } <max> ret; }"
    )


@pytest.mark.parametrize(
    "end", [".loc 0 1 1\nexit;", ".loc 0 1 1exit;", "ret .uni;", "mov.u32 %r1, 1;", "@%p1 bra L; L:"]
)
def test_an_end_is_found_however_it_is_written(end):
    assert body(end).count("<max>") == 1


def test_the_beginning_of_an_empty_kernel_is_stamped_before_its_end():
    assert body("ret;") == "{ <min> <max> ret; }"


def test_of_half_a_million_ends_each_is_found_once():
    assert len(DONE.findall(stamp(entry("@%p1 exit;\n" * 500_000 + "ret;")).text)) == 500_001


def test_comments_texts_and_other_names_are_no_ends():
    quiet = '// ret;\n/* exit; */\n.pragma "ret; }";\ncall (retval0), f, (p);\nmov.u32 %ret, exit;\n'
    assert stamps(entry(quiet + "mov.u32 %r1, %ret;\nbra ret_1;\nret_1:\nret;")).count("<max>") == 1


def test_a_text_of_very_many_ends_is_read_in_linear_time():
    assert len(DONE.findall(stamp(entry("@%p1 exit;\n" * 200_000 + "ret;")).text)) == 200_001


def test_a_function_ends_no_thread_by_returning_but_by_exit():
    function = ".func helper()\n{\n@%p1 exit;\nret;\n}\n"
    text = stamps(entry("ret;").replace(".visible .entry", f"{function}.visible .entry"))
    assert "{ @!%p1 bra $evo_over_0; <max> exit; $evo_over_0: ret; }" in text
    assert text.count("<max>") == 2


def test_all_kernels_of_a_module_are_stamped_and_declarations_are_not():
    two = entry("ret;", "one") + entry("{\nmov.v2.u32 {%r1, %r2}, x;\n}\nret;", "two").removeprefix(HEAD)
    found = stamp(f"{two}\n.entry declared(.param .u64 p);\n")
    assert found.kernels == {"one", "two"}
    assert (len(BEGIN.findall(found.text)), len(DONE.findall(found.text))) == (2, 2)


def test_nothing_else_of_the_text_changes():
    ptx = entry("// a comment; with @%p ret;\nmov.u32 %r1, 1;\nret;")
    assert stamps(ptx).replace("<min> ", "").replace("<max> ", "") == " ".join(ptx.split())


@pytest.mark.parametrize(
    ("ptx", "why"),
    [
        (entry(f"st.global.u64 [{STAMPS}], 0;\nret;"), "uses evo_stamps"),
        (entry(".reg .b32 %evo_lanes;\nret;"), "uses evo_stamps or a register %evo_"),
        (entry("ret;").replace("64\n", "32\n", 1), "no .address_size 64"),
        (entry("{ ret;"), "the body of k does not end"),
        ("", "no .address_size 64"),
    ],
)
def test_a_text_that_is_written_otherwise_is_refused(ptx, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        stamp(ptx)


@pytest.mark.parametrize("path", ["seed/naive.cu", "seed/mma.cu", "seed/hopper.cu", "champion/hopper_attention.cu"])
def test_shipped_kernels_assemble_with_stamps_in_as_many_registers(tmp_path, path):
    pytest.importorskip("cupy")
    source = (ROOT / "kernels" / path).read_text()
    manifest = read_manifest(source)
    start_fork_server()
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=ROOT / "kernels" / "include", cache=BuildCache(tmp_path), processes=1,
        timeout_s=120.0, memory_bytes=4 << 30,
    )  # fmt: skip
    try:
        ptx = compiler.ptx(source, plan_builds(manifest, load_suite("core26"))[0])
    finally:
        compiler.close()
    found = stamp(ptx)
    assert found.kernels >= {launch.kernel for launch in manifest.launches if launch.kernel in ptx}
    assert len(BEGIN.findall(found.text)) == len(found.kernels)
    assert len(DONE.findall(found.text)) >= len(found.kernels)
    if shutil.which("ptxas") is None:
        pytest.skip("no ptxas here: the stamps stand in the text, and whether it assembles was not looked at")
    assert resources(found.text, tmp_path) == resources(ptx, tmp_path)


def resources(ptx, folder):
    """What ptxas says of registers and of serialised products."""
    (folder / "kernel.ptx").write_text(ptx)
    command = ("ptxas", "-v", "-arch=sm_90a", str(folder / "kernel.ptx"), "-o", str(folder / "kernel.cubin"))
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return re.findall(r"Used (\d+) registers", ended.stderr), "serialized" in ended.stderr
