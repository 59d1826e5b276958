"""Where the address of a launch's parameters goes, in texts and in what NVRTC makes of sources."""

import pytest

from fitness.nvrtc import options_for
from fitness.ptx_parameter_reads import unbounded_read
from fitness.ptx_parameters import writable_parameters

TAKEN = "mov.b64 %rd1, k_param_0; cvta.param.u64 %rd2, %rd1;"
SOURCE = """
struct Parameters {{ int* o; int n; int numbers[8]; }};
struct alignas(64) Map {{ unsigned long long opaque[16]; }};
__device__ __noinline__ int peek(const Parameters* p) {{ return p->numbers[p->n & 7]; }}
extern "C" __global__ void k(const __grid_constant__ Parameters params, const __grid_constant__ Map map,
                             const __grid_constant__ Map other) {{ {} }}
"""
TAKEN_IN_ASM = "mov.b64 t, k_param_0; cvta.param.u64 t, t;"


def function(*statements: str, name: str = "k") -> str:
    body = " ".join(statements)
    return f".visible .entry {name}(.param .align 8 .b8 {name}_param_0[64]) {{ .reg .b64 %rd<9>; {body} ret; }}"


@pytest.mark.parametrize(
    "use",
    [
        "prefetch.tensormap [%rd2];",
        "setp.eq.s64 %p1, %rd2, 0;",  # a pointer to a map that may be none
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2, {%r2, %r3}], [%r6];",
        "@%p1 cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%rd2, {%r2, %r3, %r4, %r5}], [%r1];",
        "cp.async.bulk.prefetch.tensor.4d.L2.global [%rd2, {%r2, %r3, %r4, %r5}];",
        "add.s64 %rd3, %rd2, 128; selp.b64 %rd4, %rd3, %rd2, %p1; prefetch.tensormap [%rd4];",
        "{ .reg .b64 t; mov.b64 t, %rd2; prefetch.tensormap [t]; }",
        "st.u32 [%rd7], %r1;",  # another address
    ],
)
def test_an_address_may_be_given_to_the_copy_engine(use):
    assert writable_parameters(function(TAKEN, use)) == ""


def test_a_declaration_with_very_many_blanks_is_read_in_linear_time():
    assert writable_parameters(function(TAKEN, f".reg .v2{' ' * 250_000}.b32 %v<2>;")) == ""


@pytest.mark.parametrize(
    "use",
    [
        "st.volatile.u32 [%rd2+64], %r1;",
        "ld.u32 %r1, [%rd2+64];",  # what lies before the parameters is where they are
        "ld.volatile.u64 %rd3, [%rd2+-120];",
        "st.u32 [%rd02], %r1;",  # to ptxas these are all one register
        "st.u32 [%rd4294967298], %r1;",
        "st.u32 [%rd18446744073709551618], %r1;",
        ".extern .func other(.param .b64 x); st.u32 [%rd2], %r1;",
        "st.u64 [%rd7], %rd2;",
        "red.add.u32 [%rd2], 1;",
        "atom.add.u32 %r1, [%rd2], 1;",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 64;",
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd7], %rd2;",
        "setp.lt.u64 %p1, %rd2, 4096;",
        "cvt.u32.u64 %r1, %rd2;",
        "add.cc.u64 %rd3, %rd2, 1;",
        "xor.b64 %rd3, %rd2, 1;",
        "st.param.b64 [param0], %rd2;",
        "call (retval0), f, (%rd2);",
        "st .u32 [%rd2], %r1;",
        "L: st.u32 [%rd2], %r1;",
        "} { st.u32 [%rd2], %r1;",
    ],
)
def test_any_other_use_is_told(use):
    found = writable_parameters(function(TAKEN, use))
    assert found == use.rstrip(";").rpartition("; ")[2]


@pytest.mark.parametrize(
    "way",
    [
        "mov.u64 %rd3, %rd2; st.u32 [%rd3], %r1;",
        "st.u32 [%rd4], %r1; mov.b64 %rd4, %rd3; add.u64 %rd3, %rd2, 8;",  # a loop may carry it back
        "mov.b64 {%r1, %r2}, %rd2; st.u32 [%rd7], %r2;",
        "selp.u64 %rd3, %rd7, %rd2, %p1; st.u32 [%rd3], %r1;",
        "/* mov */ mov.b64 %rd3, %rd2; st.u32 [%rd3], %r1;",
    ],
)
def test_an_address_is_followed_from_register_to_register(way):
    assert writable_parameters(function(TAKEN, way)).startswith("st.u32 [")


@pytest.mark.parametrize(
    "statement",
    [
        "cvta .param.u64 %rd2, %rd1;",
        "cvta. param.u64 %rd2, %rd1;",
        "cvta.param.u32 %r1, %r2;",
        ".loc 0 1 1cvta.param.u64 %rd2, %rd1;",  # a line of its own needs no semicolon, and no space either
        "isspacep.param %p1, %rd7;",
    ],
)
def test_what_takes_or_finds_an_address_in_an_unusual_way_is_told(statement):
    assert writable_parameters(function(statement)) == statement.rstrip(";")


def test_the_head_of_a_function_hides_nothing():
    assert writable_parameters(".entry k(.param .u64 p) { cvta.param.u64 %rd2, %rd1; ret; }").endswith("%rd2, %rd1")


def test_registers_go_by_the_same_names_in_each_function():
    other = function("st.u32 [%rd2], %r1;", name="other")
    assert writable_parameters(function(TAKEN) + other) == writable_parameters(other + function(TAKEN)) == ""
    assert writable_parameters(other + function(TAKEN, "st.u32 [%rd2], 7;")) == "st.u32 [%rd2], 7"


def test_a_chain_of_a_hundred_thousand_registers_is_followed_to_its_end():
    chain = [f"mov.b64 %rd{i + 1}, %rd{i};" for i in range(2, 100_000)]
    backwards = " ".join(reversed(chain))
    assert writable_parameters(function(TAKEN, backwards, "st.u32 [%rd100000], 7;")) == "st.u32 [%rd100000], 7"


@pytest.mark.parametrize(
    "read",
    [
        "ld.param.u32 %r1, [k_param_0+96];",
        "ld.param.v2.u32 {%r1, %r2}, [k_param_0];",
        "mov.b64 %rd1, k_param_0; add.s64 %rd2, %rd1, 88; ld.param.u64 %rd5, [%rd2+-56];",
        "ld.param.u64 %rd5, [%rd2+-88]; mov.b64 %rd1, k_param_0; add.s64 %rd2, %rd1, 88;",
        "{ .param .b32 retval0; call.uni (retval0), f, (param0); ld.param.b32 %r1, [retval0+0]; }",
    ],
)
def test_parameters_are_read_at_fixed_places(read):
    assert unbounded_read(function(read)) == ""


@pytest.mark.parametrize(
    "read",
    [
        "ld.param.u64 %rd2, [k_param_0+-120];",
        "ld.param.u64 %rd2, [k_param_0+65416];",  # it comes round
        "ld.param.u64 %rd2, [k_param_0+4294967176];",
        "ld.param.u64 %rd2, [k_param_0+1000-1120];",
        "ld.param.u64 %rd2, [k_param_0+0200];",  # octal
        "ld.param.u64 %rd2, k_param_0[-15];",
        "ld.param.u64 %rd2, k_param_0[%rd3];",
        "ld.u64.param %rd2, [k_param_0+-120];",
        "ld .param .u64 %rd2, [k_param_0+-120];",
        ".loc 0 1 1ld.param.u64 %rd2, [k_param_0+-120];",
        "mov.b64 %rd1, 408; ld.param.u64 %rd2, [%rd1];",
        "mov.b64 %rd1, k_param_0+-120; ld.param.u64 %rd2, [%rd1];",
        "mov.b64 %rd1, k_param_0; add.s64 %rd1, %rd1, -120; ld.param.u64 %rd2, [%rd1];",
        "mov.b64 %rd1, k_param_0; add.s64 %rd3, %rd1, %rd4; ld.param.u64 %rd2, [%rd3];",
        "@%p1 mov.b64 %rd1, k_param_0; ld.param.u64 %rd2, [%rd1];",
        "mov.b64 %rd01, k_param_0; mov.b64 %rd1, 408; ld.param.u64 %rd2, [%rd1];",
        "{ .reg .b64 k_param_0; mov.b64 k_param_0, 408; ld.param.u64 %rd2, [k_param_0]; }",
        "{ .reg .b64 k_param_<2>; ld.param.u64 %rd2, [k_param_0]; }",
        "add.s64 %rd1, %rd1, 8; ld.param.u64 %rd2, [%rd1];",
    ],
)
def test_a_read_that_may_lie_beside_them_is_told(read):
    """What ptxas accepts of these loads from the bank of constants before the parameters: their address is there."""
    assert "ld" in unbounded_read(function(read))


def test_a_register_behind_a_hundred_thousand_others_is_not_followed_for_ever():
    chain = " ".join(f"mov.b64 %rd{i + 1}, %rd{i};" for i in range(1, 100_000))
    read = "ld.param.u32 %r1, [%rd100000];"
    assert unbounded_read(function("mov.b64 %rd1, k_param_0;", chain, read)) == read.rstrip(";")


@pytest.fixture(scope="module")
def ptx():
    """What NVRTC makes of the body of a kernel with parameters and two maps."""
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc

    def ptx(body, *, by_value=False):
        source = SOURCE.replace("const __grid_constant__ Parameters", "Parameters") if by_value else SOURCE
        program = nvrtc.createProgram(source.format(body), "candidate.cu", [], [])
        nvrtc.compileProgram(program, [*options_for("sm_90a")])
        made = nvrtc.getPTX(program).decode()
        nvrtc.destroyProgram(program)
        return made

    return ptx


@pytest.mark.parametrize(
    "body",
    [
        "params.o[0] = params.numbers[3];",
        "const Map* m = threadIdx.x == 1 ? &map : threadIdx.x == 2 ? &other : nullptr;"
        'if (m) asm volatile("prefetch.tensormap [%0];" :: "l"(m));',
        "const volatile Parameters* p = &params; params.o[0] = p->n;",
        'asm volatile("prefetch.tensormap [%0];" :: "l"(params.n ? &map : &other));',
        'asm volatile("{.reg .b64 t; mov.b64 t, %0; prefetch.tensormap [t];}" :: "l"(&map));',
        "Parameters own = params; own.n += threadIdx.x; params.o[0] = peek(&own);",
    ],
)
def test_what_honest_sources_do_is_none(ptx, body):
    made = ptx(body)
    assert writable_parameters(made) == unbounded_read(made) == ""


@pytest.mark.parametrize(
    "index",
    ["-5", "(threadIdx.x & 7)", "(threadIdx.x - 40)"],  # a dynamic one may be anything
)
def test_an_index_that_may_lie_outside_is_told_whoever_writes_it(ptx, index):
    assert "ld.param" in unbounded_read(ptx(f"params.o[0] = params.numbers[{index}];"))


def test_an_index_into_what_is_taken_by_value_is_one_into_a_copy(ptx):
    made = ptx("Parameters own = params; own.n += 1; params.o[0] = own.numbers[threadIdx.x & 7];", by_value=True)
    assert "ld.local" in made
    assert unbounded_read(made) == ""


@pytest.mark.parametrize(
    "body",
    [
        '*(volatile int*)&params.numbers[3] = 1;',
        'auto* p = const_cast<Parameters*>(&params); asm volatile("" : "+l"(p)); p->n = 1;',
        'auto* p = const_cast<Map*>(&map); asm volatile("" : "+l"(p)); p->opaque[15] = 1;',
        'long long a; asm volatile("{.reg .b64 t; TAKEN mov.b64 %0, t;}" : "=l"(a)); *(volatile int*)a = 1;',
        'asm volatile("{.reg .b64 t; TAKEN st.u32 [t], 1;}");',
        "params.o[0] = (int)(long long)&params;",
        'asm volatile("{.reg .pred p; isspacep.param p, %0; @p trap;}" :: "l"(clock64()));',
        "params.o[0] = peek(&params);",  # it is not inlined, and who knows what it does
    ],
)
def test_what_could_write_to_parameters_is_told(ptx, body):
    """The compiler may drop a store that the language forbids; then there is none to tell of."""
    made = ptx(body.replace("TAKEN", TAKEN_IN_ASM))
    assert writable_parameters(made) != "" or "cvta.param" not in made
