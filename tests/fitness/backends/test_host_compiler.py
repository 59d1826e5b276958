"""Candidates as g++ takes them: what it builds, what it refuses, and in which words."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fitness.backends.host_compiler import HostCompiler, find_gxx
from fitness.backends.host_log import host_errors
from fitness.backends.host_source import RUNTIME, host_source
from fitness.build_cache import BuildCache
from fitness.child_environment import listed_environment
from fitness.evaluation import BuildReport, Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.plan import Build
from fitness.scenario import ElementType

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

INCLUDE = Path(__file__).parents[3] / "kernels" / "include"
BF16 = Build(defines=(("WIDTH", 4),), element_type=ElementType.BF16)
FP16 = Build(defines=(("WIDTH", 4),), element_type=ElementType.FP16)


def candidate(body: str = "params.lse[0] = WIDTH;", before: str = "", *, targets: str = '"portable"') -> str:
    return f"""/*evo
contract = 1
name = "one line"
targets = [{targets}]
[[launch]]
kernel = "attention_forward"
grid = ["1"]
block = ["1"]
*/
#include "attention.cuh"
{before}
extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {{
    {body}
}}
"""


def make_compiler(folder: Path, **settings: object) -> HostCompiler:
    arguments = {"processes": 2, "timeout_s": 60.0, "memory_bytes": 2 << 30} | settings
    return HostCompiler(include_dir=INCLUDE, cache=BuildCache(folder, suffix=".so"), **arguments)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fault_of(compiler: HostCompiler, source: str, *builds: Build) -> CandidateFault:
    with pytest.raises(CandidateFault) as raised:
        compiler.compile(source, builds or (BF16,))
    return raised.value


@needs_gxx
def test_builds_come_in_their_order_with_the_name_of_what_tells_them_apart(tmp_path):
    built = make_compiler(tmp_path).compile(candidate(), (FP16, BF16))

    assert [each.build for each in built] == [FP16, BF16]
    assert built[0].report == BuildReport(name="element=fp16", kernels=(), advisories=())
    assert built[0].binary != built[1].binary
    assert built[0].binary.read_bytes()[:4] == b"\x7fELF"


@needs_gxx
def test_a_known_build_is_not_compiled_again(tmp_path):
    gxx = find_gxx()
    counting = script(tmp_path / "g++", f'echo "$@" >> {tmp_path}/calls\nexec {gxx} "$@"')
    first = make_compiler(tmp_path / "cache", gxx=counting).compile(candidate(), (BF16,))
    second = make_compiler(tmp_path / "cache", gxx=counting).compile(candidate(), (BF16,))

    assert first == second
    compilations = [line for line in (tmp_path / "calls").read_text().splitlines() if "-DEVO_BF16=1" in line]
    assert len(compilations) == 1


@needs_gxx
def test_the_version_names_number_and_processor(tmp_path):
    version = make_compiler(tmp_path).version

    assert version.startswith("g++ ")
    assert version.endswith(")")


@needs_gxx
@pytest.mark.parametrize(
    ("body", "before", "reason"),
    [
        ("params.lse[0] = widht;", "", "candidate.cu(13): error: 'widht' was not declared in this scope"),
        ("__shfl_sync(1);", "", "candidate.cu(13): error: no matching function for call to '__shfl_sync(int)'"),
        (
            "__shfl_sync(~0u, params, 1);",
            "",
            "candidate.cu(13): error: static assertion failed: a shuffle moves at most eight bytes",
        ),
        ("params.lse[0] = f(1);", "__device__ float f(int x);", "f(int) is declared and never defined"),
        ("", '#include "nowhere.h"', "candidate.cu(11): error: nowhere.h: No such file or directory"),
        ("", "#if 0\n#include <x>\n#endif\n#error no WIDTH", "candidate.cu(14): error: #error no WIDTH"),
    ],
)
def test_a_refusal_quotes_the_candidates_own_line(tmp_path, body, before, reason):
    fault = fault_of(make_compiler(tmp_path), candidate(body, before))

    assert fault.status is Status.COMPILE_ERROR
    assert reason in fault.reason
    assert str(RUNTIME) not in fault.reason


@needs_gxx
def test_the_text_of_an_included_file_is_not_shown(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2 is it\n", encoding="utf-8")
    fault = fault_of(make_compiler(tmp_path), candidate(before=f'#include "{secret}"'))

    assert fault.status is Status.COMPILE_ERROR
    assert "hunter2" not in fault.reason


@needs_gxx
def test_a_kernel_that_is_not_there_is_named(tmp_path):
    fault = fault_of(make_compiler(tmp_path), candidate().replace("void attention_forward", "void attention"))

    assert fault.status is Status.COMPILE_ERROR
    assert "candidate.cu(1): error: attention_forward is declared and never defined" in fault.reason


@needs_gxx
@pytest.mark.parametrize(
    ("body", "before", "name"),
    [
        ("params.lse[0] = calls++;", "__device__ int calls;", "calls"),
        ("params.lse[0] = calls++;", "__device__ int calls = 7;", "calls"),
        ("static int calls; params.lse[0] = ++calls;", "", "attention_forward::calls"),
        (
            "params.lse[0] = count<3>();",
            "template <int N> __device__ int count() { static int calls; return calls += N; }",
            "count<3>()::calls",
        ),
        ("params.lse[0] = ++calls;", 'extern "C" { __device__ int calls; }', "calls"),
        ("static thread_local int calls = 3; params.lse[0] = ++calls;", "", "attention_forward::calls"),
    ],
)
def test_state_that_outlives_a_call_is_refused_by_name(tmp_path, body, before, name):
    fault = fault_of(make_compiler(tmp_path), candidate(body, before))

    assert fault.status is Status.INVALID
    assert f"keeps state in memory, or could: {name}. " in fault.reason.replace("[abi:cxx11]", "").replace("int ", "")


@needs_gxx
@pytest.mark.parametrize("name", ["end", "_end", "edata", "__bss_start"])
def test_memory_that_the_linker_names_is_the_candidates_own_doing(tmp_path, name):
    fault = fault_of(make_compiler(tmp_path), candidate(f"params.lse[0] = {name}[1]++;", f'extern "C" int {name}[];'))

    assert fault.status is Status.INVALID
    assert f"keeps state in memory, or could: {name}. " in fault.reason


@needs_gxx
@pytest.mark.parametrize("name", ["__TMC_END__", "__dso_handle"])
def test_a_variable_is_not_exempt_for_having_the_name_of_one_that_every_binary_has(tmp_path, name):
    source = candidate(f"params.lse[0] = {name}++;", f'extern "C" {{ static int {name}; }}')
    fault = fault_of(make_compiler(tmp_path), source)

    assert fault.status is Status.INVALID
    assert f"keeps state in memory, or could: {name}. " in fault.reason


NESTED = "struct A {};\ntemplate <class X, class Y> struct P {};\ntypedef P<A, A> T0;\n" + "".join(
    f"typedef P<T{depth}, T{depth}> T{depth + 1};\n" for depth in range(40)
)


@needs_gxx
def test_a_name_that_takes_terabytes_in_words_is_never_put_into_words(tmp_path):
    function = "template <class T> __noinline__ void f(float* o) { o[0] = 1; }"
    (built,) = make_compiler(tmp_path).compile(candidate("f<T40>(params.lse);", NESTED + function), (BF16,))

    assert built.binary.read_bytes()[:4] == b"\x7fELF"


@needs_gxx
def test_a_variable_of_such_a_name_is_told_as_the_binary_has_it(tmp_path):
    variable = "template <class T> struct V { static int x; };\ntemplate <class T> int V<T>::x;"
    fault = fault_of(make_compiler(tmp_path), candidate("params.lse[0] = ++V<T40>::x;", NESTED + variable))

    assert fault.status is Status.INVALID
    assert "keeps state in memory, or could: _ZN12_GLOBAL__N_1" in fault.reason
    assert len(fault.reason) < 1000


@needs_gxx
@pytest.mark.parametrize(
    ("call", "declared", "name"),
    [
        ("rand()", 'extern "C" int rand();', "rand"),
        ("*static_cast<int*>(malloc(4))", 'extern "C" void* malloc(size_t);', "malloc"),
        ("getpid()", 'extern "C" int getpid();', "getpid"),
        ("*getenv(\"HOME\")", 'extern "C" char* getenv(const char*);', "getenv"),
    ],
)
def test_a_call_of_the_systems_library_is_refused_by_name(tmp_path, call, declared, name):
    fault = fault_of(make_compiler(tmp_path), candidate(f"params.lse[0] = {call};", declared))

    assert fault.status is Status.INVALID
    assert fault.reason == f"the source calls {name}; a portable kernel may call CUDA's own functions only"


@needs_gxx
@pytest.mark.parametrize(
    ("definition", "name"),
    [
        ('extern "C" void* memset(void* at, int, size_t) { return at; }', "memset"),
        ('#define C(name) extern "C" void* name(void* at, const void*, size_t) { return at; }\nC(memcpy)', "memcpy"),
        ('} extern "C" void* memmove(void* at, const void*, size_t) { return at; }\nnamespace {', "memmove"),
        ('extern "C" void __cxa_finalize(void*) {}', "__cxa_finalize"),
    ],
)
def test_a_function_in_the_librarys_place_is_refused_by_name(tmp_path, definition, name):
    body = "__cxa_finalize(params.o);" if name.startswith("__") else ""
    fault = fault_of(make_compiler(tmp_path), candidate(body, definition))

    assert fault.status is Status.INVALID
    assert fault.reason == f"the source defines {name}, a name of the C library; choose another"


@needs_gxx
def test_a_binary_of_tables_is_refused_and_takes_no_place_in_the_cache(tmp_path):
    table = "__device__ const char table[100000000] = {1};"
    fault = fault_of(make_compiler(tmp_path), candidate("params.lse[0] = table[params.batch];", table))

    assert fault.status is Status.COMPILE_ERROR
    assert "ran out of memory, time or space" in fault.reason
    assert list(tmp_path.glob("*")) == []


def compile_with_bounded_files(folder: Path, gxx: Path, most_bytes: int) -> str:
    """The environment's fault that a process told which may write no larger files."""
    program = f"""
import resource
from pathlib import Path
from fitness.backends.host_compiler import HostCompiler
from fitness.build_cache import BuildCache
from fitness.faults import EnvironmentFault
from fitness.plan import Build
from fitness.scenario import ElementType
resource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes}, {most_bytes}))
compiler = HostCompiler(
    include_dir=Path({str(INCLUDE)!r}), cache=BuildCache(Path({str(folder)!r})), processes=1, timeout_s=60.0,
    memory_bytes=2 << 30, gxx=Path({str(gxx)!r}),
)
try:
    compiler.compile({candidate()!r}, (Build(defines=(), element_type=ElementType.BF16),))
except EnvironmentFault as fault:
    print(fault)
"""
    return subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True).stdout


def test_files_that_others_have_bounded_are_no_fault_of_the_candidate(tmp_path):
    killed = script(tmp_path / "g++", 'case "$*" in *-x*) echo "g++: File size limit exceeded" >&2; exit 1;; esac')

    told = compile_with_bounded_files(tmp_path, killed, 1 << 20)

    assert told.startswith("g++ cannot work here: g++: File size limit exceeded")


def test_a_folder_for_temporary_files_without_room_is_not_the_candidates_fault(tmp_path):
    told = compile_with_bounded_files(tmp_path, script(tmp_path / "g++", "true"), 16)

    assert told.startswith("g++ cannot be run here: [Errno 27] File too large; look for space in the folder for temp")


@needs_gxx
def test_mathematics_and_copies_are_no_calls_to_refuse(tmp_path):
    body = """
    float values[64];
    memcpy(values, params.lse, sizeof values);
    params.lse[0] = sinf(values[3]) + powf(values[1], values[2]) + erff(values[4]) + log1pf(values[5]);
    params.lse[1] = sqrt(double(values[7])) + exp(double(values[8]));"""
    assert make_compiler(tmp_path).compile(candidate(body), (BF16,))


@needs_gxx
@pytest.mark.parametrize("name", ["step", "lane", "count", "memory", "x", "stdin", "poison", "linux"])
def test_a_knob_may_have_any_name_that_our_headers_use(tmp_path, name):
    build = Build(defines=((name, 4),), element_type=ElementType.BF16)

    assert len(make_compiler(tmp_path).compile(candidate(f"params.lse[0] = {name};"), (build,))) == 1


@needs_gxx
def test_tables_and_shared_memory_are_no_state(tmp_path):
    before = """
__constant__ float halves[4] = {0.5f, 1.0f, 1.5f, 2.0f};
__device__ const int primes[] = {2, 3, 5, 7};
template <int N> __device__ float shared(int i) {
    __shared__ float kept[N];
    kept[i] = i;
    __syncthreads();
    return kept[0];
}
"""
    body = "__shared__ int x; x = 1; params.lse[0] = halves[params.batch] + primes[params.heads] + shared<4>(x);"

    assert len(make_compiler(tmp_path).compile(candidate(body, before), (BF16,))) == 1


def test_a_kernel_for_a_gpu_alone_is_unsupported(tmp_path):
    compiler = make_compiler(tmp_path, gxx=Path("g++"))

    fault = fault_of(compiler, candidate(targets='"sm_90a"'))
    assert (fault.status, fault.reason) == (
        Status.UNSUPPORTED, "targets sm_90a; the host backend runs portable kernels only",
    )  # fmt: skip


def test_a_compiler_that_runs_on_is_killed_with_its_children(tmp_path):
    endless = script(tmp_path / "g++", f'case "$*" in *-x*) sleep 1000 & echo $! > {tmp_path}/child; wait;; esac')
    fault = fault_of(make_compiler(tmp_path / "cache", gxx=endless, timeout_s=0.5), candidate())

    assert (fault.status, fault.reason) == (Status.COMPILE_ERROR, "compiling took longer than 0.5 s")
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert list((tmp_path / "cache").glob("*")) == []  # a slow machine's verdict is not kept


@pytest.mark.parametrize(
    "words",
    ["cc1plus: fatal error: error writing to x.s: No space left on device", "g++: error: cannot execute 'cc1plus'"],
)
def test_a_machine_that_cannot_compile_is_not_the_candidates_fault(tmp_path, words):
    broken = script(tmp_path / "g++", f'echo "{words}" >&2\ncase "$*" in *-x*) exit 1;; esac')

    with pytest.raises(EnvironmentFault, match="g\\+\\+ cannot work here"):
        make_compiler(tmp_path / "cache", gxx=broken).compile(candidate(), (BF16,))


def test_a_compiler_that_fails_when_asked_for_its_version_is_quoted(tmp_path):
    broken = script(tmp_path / "g++", 'echo "No space left on device" >&2; exit 1')

    with pytest.raises(EnvironmentFault, match="does not work: No space left on device; install g"):
        make_compiler(tmp_path / "cache", gxx=broken).compile(candidate(), (BF16,))


def test_a_compiler_that_is_not_there_is_named(tmp_path):
    with pytest.raises(EnvironmentFault, match="/nowhere/g\\+\\+ does not work"):
        make_compiler(tmp_path, gxx=Path("/nowhere/g++")).compile(candidate(), (BF16,))


@needs_gxx
def test_the_candidate_cannot_pose_as_a_broken_machine(tmp_path):
    fault = fault_of(make_compiler(tmp_path), candidate(before="#error No space left on device"))

    assert fault.status is Status.COMPILE_ERROR
    assert "candidate.cu(11): error: #error No space left on device" in fault.reason


@needs_gxx
@pytest.mark.parametrize("newline", ["\\n", "\\012", "\\x0a"])
def test_nor_by_an_assertion_of_several_lines(tmp_path, newline):
    posing = f'static_assert(WIDTH == 5, "{newline}" "g++: fatal error: No space left on device");'
    fault = fault_of(make_compiler(tmp_path), candidate(before=posing))

    assert fault.status is Status.COMPILE_ERROR
    assert "candidate.cu(11): error: static assertion failed" in fault.reason


@needs_gxx
def test_running_out_of_memory_is_the_candidates_fault(tmp_path):
    fault = fault_of(make_compiler(tmp_path, memory_bytes=48 << 20), candidate())

    assert fault.status is Status.COMPILE_ERROR
    assert "out of memory" in fault.reason


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


def killed_gxx(folder: Path, times: int, how: str) -> Path:
    """A g++ that something kills the first times that it compiles; `calls` counts those."""
    count = f"echo >> {folder}/calls; [ $(wc -l < {folder}/calls) -gt {times} ]"
    return script(folder / "g++", f'case "$*" in *-x*) {count} || {{ {how}; }};; esac\nexec {find_gxx()} "$@"')


@needs_gxx
@pytest.mark.parametrize("how", [f"echo '{KILLED}' >&2; exit 1", "kill -9 $$"])
def test_a_compiler_that_is_killed_once_is_run_again(tmp_path, how):
    compiler = make_compiler(tmp_path / "cache", gxx=killed_gxx(tmp_path, 1, how))
    [built] = compiler.compile(candidate(), (BF16,))
    assert built.binary.is_file()
    assert (tmp_path / "calls").read_text() == "\n\n"


@needs_gxx
def test_what_a_killed_compiler_had_started_is_ended_with_it(tmp_path):
    """As g++ starts cc1plus, which holds the log open and goes on by itself."""
    orphaned = killed_gxx(tmp_path, 1, f"( sleep 20; touch {tmp_path}/outlived ) & kill -9 $$")
    assert make_compiler(tmp_path / "cache", gxx=orphaned).compile(candidate(), (BF16,))
    assert not (tmp_path / "outlived").exists()


@needs_gxx
def test_a_compiler_that_is_killed_twice_is_the_candidates_fault_for_now(tmp_path):
    killed = killed_gxx(tmp_path, 2, f"echo '{KILLED}' >&2; exit 1")
    fault = fault_of(make_compiler(tmp_path / "cache", gxx=killed), candidate())
    assert (fault.status, (tmp_path / "calls").read_text()) == (Status.COMPILE_ERROR, "\n\n")
    assert make_compiler(tmp_path / "cache", gxx=killed).compile(candidate(), (BF16,))  # it was not kept


def test_the_compiler_sees_the_listed_environment_alone(tmp_path):
    listing = script(tmp_path / "g++", f'case "$*" in *-x*) env > {tmp_path}/environment; exit 1;; esac')
    fault_of(make_compiler(tmp_path / "cache", gxx=listing), candidate())

    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {"PATH", "TMPDIR", "LC_ALL"} <= names <= {*listed_environment(os.environ), "TMPDIR", "LC_ALL", *of_the_shell}


class TestHostSource:
    def test_lines_keep_their_numbers(self):
        source = "int a;\n#pragma unroll\nextern __shared__ __align__(16)\n    float x[];\nint b; // c\n"

        lines = host_source(source, ["k"]).splitlines()
        begin = lines.index('#line 1 "candidate.cu"')
        assert lines[begin + 1 :] == [
            "int a;",
            "EVO_UNROLL(1)",
            "float (* const x) = reinterpret_cast<float (*)>(evo::dynamic_shared);",
            "",
            "int b; // c",
            "",
            "}",
        ]

    def test_nothing_of_ours_stands_behind_the_candidate_whose_macros_would_change_it(self):
        text = host_source("#define evo_forget\n", ["k"])

        assert text.endswith('#line 1 "candidate.cu"\n#define evo_forget\n\n}\n')

    @pytest.mark.parametrize(
        ("declaration", "pointer"),
        [
            ("extern __shared__ float x[];", "float (* const x)"),
            ("extern __shared__ alignas(16) unsigned char bytes[];", "unsigned char (* const bytes)"),
            ("extern __align__(sizeof(int) * 4) __shared__ Element tile[][D + 8];", "Element (* const tile)[D + 8]"),
            ("extern __shared__ __attribute__((aligned(128))) uint4 x [ ] ;", "uint4 (* const x)"),
        ],
    )
    def test_dynamic_shared_memory_becomes_a_pointer(self, declaration, pointer):
        assert f"\n{pointer} = reinterpret_cast<" in host_source(declaration, [])

    @pytest.mark.parametrize(
        ("pragma", "macro"),
        [
            ("#pragma unroll", "EVO_UNROLL(1)"),
            ("  # pragma unroll 4", "EVO_UNROLL(4)"),
            ("#pragma nounroll", "EVO_UNROLL(1)"),
            ("#pragma unroll (WIDTH / 2)", "EVO_UNROLL((WIDTH / 2))"),
        ],
    )
    def test_unroll_pragmas_become_gccs(self, pragma, macro):
        assert f"\n{macro}\n" in host_source(f"{pragma}\nfor (;;);", [])

    @pytest.mark.parametrize(
        "text",
        [
            "extern __shared__ float tile" + " " * 200_000 + ";",
            "extern __shared__ float tile " * 8000,
            "extern __shared__ float tile[] " * 8000,
            "extern alignas(() " * 12_000,
        ],
    )
    def test_a_text_of_many_declarations_without_an_end_takes_no_longer_than_its_length(self, text):
        assert text in host_source(text, [])

    def test_comments_and_literals_are_left_alone(self):
        source = '// extern __shared__ float x[];\nconst char* s = "extern __shared__ float x[];";\n'

        assert source in host_source(source, [])


def test_a_log_without_a_line_of_the_candidate_says_so():
    assert host_errors("collect2: error: ld returned 1 exit status") == (
        "the compiler refused the source, and its messages name no line of it"
    )


def test_a_line_of_the_candidate_that_names_no_end_takes_no_longer_than_its_length():
    quoted = "undefined reference to `" * 100_000
    log = f"candidate.cu:3:1: error: no\n    3 | {quoted}\nld: undefined reference to `f(int)'\n"
    assert host_errors(log).endswith("f(int) is declared and never defined")
