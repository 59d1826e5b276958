"""The manifest's reader, and the edits of knob values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.identifiers import SCENARIO_FIELDS
from fitness.manifest import (
    Knob,
    LaunchSpec,
    Layer,
    Manifest,
    TensorMapSpec,
    WorkspaceSpec,
    read_manifest,
)
from fitness.scenario import Scenario

SAMPLE = """
// A kernel may begin with other comments.
/*evo
contract = 1
name = "tiled online softmax"
targets = ["portable"]                     # any GPU, and the host backend
supports = "(head_dim == 64 or head_dim == 128) and heads % kv_heads == 0"

[defines]                                  # each may use those above it
HEAD_DIM = "head_dim"
CAUSAL = "causal"
LONG = "seqlen_k > 1024"

[knobs]
BLOCK_M = { value = 64, choices = [32, 64, 128], layer = "schedule" }
BLOCK_N = { value = 64, choices = [64, 128], layer = "memory" }

[[tensor_map]]
tensor = "k"
box = [64, "1", "BLOCK_N", 1]
swizzle = "128"
when = "LONG"

[[workspace]]
bytes = "batch * heads * seqlen_q * 4"
zeroed = true

[[launch]]
kernel = "attention_forward"
grid = ["(seqlen_q + BLOCK_M - 1) // BLOCK_M", "heads", "batch"]
block = ["128"]
shared_bytes = "2 * BLOCK_M * head_dim * 2"
*/
#include "attention.cuh"
int x = '"'; // /*evo */ in another comment is none, nor is one in a string:
const char* y = "/*evo */";
"""

MINIMAL = """/*evo
contract = 1
name = "n"
targets = ["sm_90a"]
[knobs]
K = { value = 1, choices = [1, 2], layer = "launch" }
[defines]
D = "head_dim"
[[launch]]
kernel = "f"
grid = ["1"]
block = ["32"]
*/
"""


def reason_of(source: str) -> str:
    with pytest.raises(CandidateFault) as caught:
        read_manifest(source)
    assert caught.value.status is Status.INVALID
    return caught.value.reason


def manifest_or_fault(source: str) -> Manifest | CandidateFault:
    try:
        return read_manifest(source)
    except CandidateFault as fault:
        return fault


def edited(old: str, new: str) -> str:
    assert MINIMAL.count(old) == 1
    return MINIMAL.replace(old, new)


def test_the_sample_is_read_in_full():
    assert read_manifest(SAMPLE) == Manifest(
        contract=1,
        name="tiled online softmax",
        targets=("portable",),
        supports="(head_dim == 64 or head_dim == 128) and heads % kv_heads == 0",
        knobs=(
            Knob(name="BLOCK_M", value=64, choices=(32, 64, 128), layer=Layer.SCHEDULE),
            Knob(name="BLOCK_N", value=64, choices=(64, 128), layer=Layer.MEMORY),
        ),
        defines=(("HEAD_DIM", "head_dim"), ("CAUSAL", "causal"), ("LONG", "seqlen_k > 1024")),
        tensor_maps=(TensorMapSpec(tensor="k", box=("64", "1", "BLOCK_N", "1"), swizzle="128", when="LONG"),),
        workspaces=(WorkspaceSpec(bytes="batch * heads * seqlen_q * 4", zeroed=True),),
        launches=(
            LaunchSpec(
                kernel="attention_forward",
                grid=("(seqlen_q + BLOCK_M - 1) // BLOCK_M", "heads", "batch"),
                block=("128", "1", "1"),
                shared_bytes="2 * BLOCK_M * head_dim * 2",
            ),
        ),
    )


def test_defaults():
    manifest = read_manifest(MINIMAL)
    assert (manifest.supports, manifest.tensor_maps, manifest.workspaces) == ("1", (), ())
    assert manifest.launches == (LaunchSpec(kernel="f", grid=("1", "1", "1"), block=("32", "1", "1")),)
    assert not manifest.portable


def test_the_scenario_fields_are_a_scenarios():
    scenario = Scenario(batch=1, heads=1, kv_heads=1, seqlen_q=1, seqlen_k=1, head_dim=64, causal=True)
    assert tuple(scenario.fields()) == SCENARIO_FIELDS


@pytest.mark.parametrize(
    "source",
    [
        "\n\n/* a licence */ // more\n" + MINIMAL,
        MINIMAL + '#include "attention.cuh"\n// /*evo\nchar c = \'"\'; /* evo */ const char* s = "/*evo ";',
        MINIMAL.replace("\n", "\r\n"),
        MINIMAL.replace("/*evo\n", "/*evo\t# the manifest\n"),
        MINIMAL + "// a line comment that goes on \\\n/*evo */",
    ],
)
def test_a_manifest_is_found_among_other_text(source):
    assert read_manifest(source) == read_manifest(MINIMAL)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("", "there is no manifest; expected a comment /*evo … */"),
        ('#include "attention.cuh"', "there is no manifest"),
        ("/* evo\ncontract = 1 */", "the comment on line 1 must begin with exactly /*evo"),
        ("\n/*EVO contract = 1 */", "the comment on line 2 must begin with exactly /*evo"),
        ("/*evolution */", "there is no manifest"),
        ("// /*evo\n// */", "there is no manifest"),
        ("#include <x>\n" + MINIMAL, "the manifest on line 2 stands after code ('#include <x>')"),
        ("\ufeff" + MINIMAL, "stands after code ('\\ufeff')"),
        (MINIMAL + MINIMAL, "there are 2 manifests, on lines 1 and 14"),
        (MINIMAL + "int x;\n/*evo*/", "there are 2 manifests"),
        (MINIMAL.replace("*/", ""), "line 1: '/*evo': this comment or literal has no end"),
        (MINIMAL + "don't", "this comment or literal has no end"),
        (MINIMAL + 'R"(x)"', "raw string literals are not allowed"),
        (MINIMAL + "int x = 1'000;", "an apostrophe may not follow a number"),
        (MINIMAL + " " * 2**18, "at most 262144 are allowed"),
        (MINIMAL.replace("*/", "#" + "x" * 2**13 + "\n*/"), "at most 8192 are allowed"),
        ("/*evo*/", "manifest: contract is missing"),
    ],
)
def test_a_manifest_that_is_not_found(source, part):
    assert part in reason_of(source)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('name = "n"', 'name = "n', "not TOML: Illegal character '\\n' (at line 3"),
        ('name = "n"', 'name = "n"\nname = "n"', "not TOML: Cannot overwrite a value"),
        ('name = "n"', "name = " + "[" * 7000, "not TOML"),
        ('name = "n"', "name = " + "9" * 7000, "not TOML"),
        ('name = "n"', "name = 0x" + "F" * 7000, "name is a number of thousands of digits; expected a string"),
        ("contract = 1", "", "contract is missing"),
        ("contract = 1", "contract = 0x" + "F" * 7000, "thousands of digits; expected a whole number below 2^63"),
        ("contract = 1", "contract = 2", "contract is 2; this version knows contract 1"),
        ("contract = 1", "contract = true", "contract is true; expected a whole number"),
        ("contract = 1", 'contract = "1"', "contract is '1'; expected a whole number"),
        ("contract = 1", "contract = 1.0", "contract is 1.0; expected a whole number"),
        ("contract = 1", "contract = 1\nsuports = '1'", "unknown key 'suports'; did you mean supports?"),
        ("contract = 1", "contract = 1\nzzz = 1", "unknown key 'zzz'; expected contract, name"),
        ('name = "n"', "", "name is missing"),
        ('name = "n"', 'name = " "', "expected one line of printable text"),
        ('name = "n"', 'name = "a\\nb"', "expected one line of printable text"),
        ('name = "n"', 'name = "a\\u0000b"', "expected one line of printable text"),
        ('name = "n"', "name = 3", "name is 3; expected a string"),
        ('["sm_90a"]', "[]", "targets is []; expected one or more of portable, sm_80"),
        ('["sm_90a"]', '["sm_90"]', "targets is ['sm_90']; expected"),
        ('["sm_90a"]', '["sm_90a", "sm_90a"]', "each once"),
        ('["sm_90a"]', '"sm_90a"', "targets is 'sm_90a'; expected a list"),
        ('["sm_90a"]', '["sm_90a", 80]', "expected a list of strings"),
        ('["sm_90a"]', '["sm_90a"]\nsupports = true', "supports is true; expected an expression"),
        ('["sm_90a"]', '["sm_90a"]\nsupports = "sm_count > 1"', "supports: 'sm_count > 1': sm_count is not known here"),
        ("[knobs]\nK = {", "knobs = 3\n[kno]\nK = {", "unknown key 'kno'; did you mean knobs?"),
        ("K = { value = 1, choices = [1, 2], layer = \"launch\" }", "K = 1", "[knobs] K is 1; expected a table"),
        ("value = 1,", "", "[knobs] K: value is missing"),
        ("value = 1,", "valu = 1,", "[knobs] K: unknown key 'valu'; did you mean value?"),
        ("value = 1,", "value = 3,", "value is not among choices"),
        ("value = 1,", "value = true,", "value is true; expected a whole number"),
        ("[1, 2]", "[1, 1]", "choices is [1, 1]; expected distinct"),
        ("[1, 2]", "[1, true]", "choices[1] is true; expected a whole number"),
        ("[1, 2]", "[]", "value is not among choices"),
        ("[1, 2]", f"[1, {2**63}]", "below 2^63"),
        ('layer = "launch"', 'layer = "lunch"', "layer is 'lunch'; expected one of algorithm, schedule"),
        ("K = {", "heads = {", "heads has a meaning of its own in expressions"),
        ("K = {", "sm_count = {", "sm_count has a meaning of its own in expressions"),
        ("K = {", "EVO_BF16 = {", "EVO_BF16 is reserved"),
        ("K = {", "_K = {", "_K is reserved"),
        ("K = {", "lambda = {", "lambda is reserved"),
        ("K = {", "asm = {", "asm has a meaning of its own in C++"),
        ("K = {", "and = {", "and has a meaning of its own in C++"),
        ("K = {", '"K=1 -include/etc/passwd" = {', "is not a C++ identifier"),
        ("K = {", "1K = {", "is not a C++ identifier"),
        ("K = {", '"É" = {', "is not a C++ identifier"),
        ("K = {", '"" = {', "is not a C++ identifier"),
        ('D = "head_dim"', 'K = "head_dim"', "[defines] K: a knob has the same name"),
        ('D = "head_dim"', 'D = "E"\nE = "1"', "E is not known here"),
        ('D = "head_dim"', 'D = "D"', "D is not known here"),
        ('D = "head_dim"', 'D = "seqlen_k"', "seqlen_k may stand only inside a comparison, or as heads // kv_heads"),
        ('D = "head_dim"', 'D = "min(batch, 2)"', "batch may stand only inside a comparison"),
        ('D = "head_dim"', 'D = "heads"', "heads may stand only inside a comparison"),
        ('D = "head_dim"', 'D = "2 if seqlen_q else 1"', "seqlen_q may stand only inside a comparison"),
        ('D = "head_dim"', 'D = "sm_count > 1"', "sm_count is not known here"),
        ('D = "head_dim"', "D = false", "[defines] D is false; expected an expression or a whole number"),
        ('D = "head_dim"', "D = 1.5", "[defines] D is 1.5; expected an expression"),
        ('D = "head_dim"', "D = 1979-05-27", "expected an expression"),
        ('D = "head_dim"', 'batch = "1"', "batch has a meaning of its own"),
        ("[[launch]]", "[launch]", "launch is {'kernel': 'f'"),
        ('kernel = "f"', "", "[[launch]] 1: kernel is missing"),
        ('kernel = "f"', 'kernel = "f<2>"', "'f<2>' is not a C++ identifier"),
        ('kernel = "f"', 'kernel = "main"', "main has a meaning of its own in C++"),
        ('kernel = "f"', 'kernel = "f"\nstream = 1', "[[launch]] 1: unknown key 'stream'"),
        ('grid = ["1"]', "", "[[launch]] 1: grid is missing"),
        ('grid = ["1"]', "grid = []", "grid has 0 entries; expected 1 to 3"),
        ('grid = ["1"]', "grid = [1, 1, 1, 1]", "grid has 4 entries; expected 1 to 3"),
        ('grid = ["1"]', "grid = 1", "grid is 1; expected a list"),
        ('grid = ["1"]', 'grid = ["1", true]', "grid[1] is true; expected an expression"),
        ('grid = ["1"]', 'grid = ["seqlen / 2"]', "[[launch]] 1: grid[0]: 'seqlen / 2': / gives fractions"),
        ('grid = ["1"]', "grid = [9223372036854775808]", "not below 2^63"),
        ('grid = ["1"]', "grid = [0x" + "F" * 7000 + "]", "not below 2^63"),
        ('block = ["32"]', 'block = ["32"]\nwhen = "sm_count > 1"', "when: 'sm_count > 1': sm_count is not known here"),
        ("[[launch]]", "[[tensor_map]]\ntensor = 'p'\n[[launch]]", "tensor is 'p'; expected one of q, k, v, o"),
        ("[[launch]]", "[[tensor_map]]\ntensor = 'q'\nbox = [1]\n[[launch]]", "box has 1 entries; expected 4"),
        ("[[launch]]", "[[tensor_map]]\ntensor = 'q'\nbox = [64,1,'sm_count',1]\n[[launch]]", "sm_count is not known"),
        ("[[launch]]", "[[tensor_map]]\ntensor = 'q'\nbox = [64,1,1,1]\n[[launch]]", "swizzle is missing"),
        ("[[launch]]", "[[tensor_map]]\ntensor = 'q'\nbox = [8,1,1,1]\nswizzle=0\n" * 17 + "[[launch]]", "at most 16"),
        ("[[launch]]", "[[workspace]]\nbytes = 4\n" * 5 + "[[launch]]", "there are 5 [[workspace]] entries; at most 4"),
        ("[[launch]]", "[[workspace]]\nbytes = 4\nzeroed = 1\n[[launch]]", "zeroed is 1; expected true or false"),
        ("[[launch]]", "[[workspace]]\nbyte = 4\n[[launch]]", "unknown key 'byte'; did you mean bytes?"),
    ],
)  # fmt: skip
def test_refusal(old, new, part):
    assert part in reason_of(edited(old, new))


def test_no_launch_is_refused():
    assert "there is no [[launch]]" in reason_of(MINIMAL[: MINIMAL.index("[[launch]]")] + "*/")


def test_lines_in_faults_are_those_of_the_file():
    source = "\n// the manifest begins on line 4\n\n" + edited("targets", "= targets")
    assert "(at line 7, column 1)" in reason_of(source)


@pytest.mark.parametrize("place", ["grid = ['sm_count']", "grid = [1]\nshared_bytes = 'sm_count'"])
def test_launches_may_count_multiprocessors(place):
    assert "sm_count" in str(read_manifest(edited('grid = ["1"]', place)).launches)


def test_a_workspace_may_count_multiprocessors():
    source = edited("[[launch]]", "[[workspace]]\nbytes = '4 * sm_count'\n[[launch]]")
    assert read_manifest(source).workspaces == (WorkspaceSpec(bytes="4 * sm_count"),)


def test_a_define_may_use_knobs_and_earlier_defines():
    source = edited('D = "head_dim"', 'D = "head_dim"\nGROUP = "heads // kv_heads"\nE = "D * K + GROUP"')
    assert read_manifest(source).defines[-1] == ("E", "D * K + GROUP")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), st.integers(0, len(MINIMAL)))
def test_any_text_gives_a_manifest_or_a_fault(text, position):
    for source in (text, "/*evo\n" + text + "*/", MINIMAL[:position] + text + MINIMAL[position:]):
        outcome = manifest_or_fault(source)
        if isinstance(outcome, CandidateFault):
            assert outcome.status is Status.INVALID
        else:
            assert outcome.contract == 1


@pytest.mark.parametrize("line", ["a." * 4000 + "b = 1", "[[a]]\n" * 1300, "a = [" + "[]," * 2500 + "]"])
def test_a_hostile_manifest_is_refused(line):
    assert reason_of("/*evo\n" + line + "\n*/")
