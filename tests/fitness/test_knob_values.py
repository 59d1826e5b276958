"""Edits of knob values: a text changed there and nowhere else, and texts compared but for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.faults import CandidateFault
from fitness.manifest import read_manifest, same_but_for_knobs, with_knobs, without_knob_values

SAMPLE = """
/*evo
contract = 1
name = "tiled online softmax"
targets = ["portable"]

[knobs]
BLOCK_M = { value = 64, choices = [32, 64, 128], layer = "schedule" }
BLOCK_N = { value = 64, choices = [64, 128], layer = "memory" }

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = ["128"]
*/
#include "attention.cuh"
const char* y = "/*evo */";
"""

KNOB_FORMS = [
    "[knobs]\nA = { value = 1, choices = [1, 2], layer = 'launch' }\n"
    "B = { value=0x1, choices = [1, 2], layer = 'launch' }",
    "[knobs]\nA={choices=[1,2],layer='launch',value=1}\nB={choices=[1,2],layer='launch',\"value\"  =  1}",
    "[knobs.A]\nvalue = 1\nchoices = [1, 2]\nlayer = 'launch'\n"
    "[knobs.B]\nchoices = [1, 2]\nlayer = 'launch'\nvalue = 1",
    "knobs.A.value = 1\nknobs.A.choices = [1, 2]\nknobs.A.layer = 'launch'\n"
    "knobs.B.layer = 'launch'\nknobs.B.choices = [1, 2]\nknobs.B.value = 1",
    "[knobs] # value = 1\nA = { value = 1, choices = [\n1, # value = 1\n2], layer = 'launch' }\n"
    "B = { value = +1, choices = [1, 2], layer = 'launch' }",
]


def with_form(form: str) -> str:
    return (
        "// value = 1\n/*evo\ncontract = 1\nname = 'value = 1'\ntargets = ['portable']\n"
        + form
        + "\n[[launch]]\nkernel = 'f'\ngrid = [1]\nblock = [1]\n*/\nint value = 1;\n"
    )


@pytest.mark.parametrize("form", KNOB_FORMS)
def test_a_knobs_value_is_changed_and_nothing_else(form):
    source = with_form(form)
    changed = with_knobs(source, {"B": 2})
    assert [knob.value for knob in read_manifest(changed).knobs] == [1, 2]
    assert len(changed) - len(source) in (0, -1, -2)
    assert [knob.value for knob in read_manifest(with_knobs(changed, {"A": 2, "B": 1})).knobs] == [2, 1]
    assert changed.replace("\n", "").count("value = 1;") == 1
    assert with_knobs(source, {"A": 1, "B": 1}) == source
    assert without_knob_values(changed) == without_knob_values(source) != source


def test_with_knobs_leaves_every_other_byte():
    assert with_knobs(SAMPLE, {"BLOCK_N": 128}) == SAMPLE.replace("BLOCK_N = { value = 64", "BLOCK_N = { value = 128")
    assert with_knobs(SAMPLE, {}) == SAMPLE


def test_with_knobs_names_an_unknown_knob():
    with pytest.raises(ValueError, match="no knob is called BLOCK; the manifest has BLOCK_M, BLOCK_N"):
        with_knobs(SAMPLE, {"BLOCK": 1})


def test_a_value_that_cannot_be_found_is_refused():
    source = with_form('[knobs]\nA = { "val\\u0075e" = 1099511627776, choices = [1099511627776], layer = "launch" }')
    with pytest.raises(CandidateFault, match="its value cannot be found"):
        with_knobs(source, {"A": 2})


def test_values_are_masked_for_comparison():
    masked = without_knob_values(SAMPLE)
    assert masked == SAMPLE.replace("value = 64", "value = ?")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("", "", True),
        ("BLOCK_M = { value = 64", "BLOCK_M = { value = 128", True),
        ("BLOCK_M = { value = 64", "BLOCK_M = { value = 256", False),  # among nobody's choices
        ("value = 64, choices = [32, 64, 128]", "value = 256, choices = [32, 64, 256]", False),  # among its own only
        ("BLOCK_M = { value = 64", "BLOCK_M = { value =  64", False),
        ("BLOCK_M = { value = 64", "BLOCK_M = { value = 0x80", False),
        ("BLOCK_M = { value = 64", "BLOCK_M = { value = 64.0", False),
        ("BLOCK_M = {", "BLOCK_X = {", False),
        ("const char* y", "const char* z", False),
        ("*/\n#include", "*/\n\n#include", False),
        ("contract = 1", "contract = 2", False),
    ],
)
def test_same_but_for_knobs(old, new, same):
    assert same_but_for_knobs(SAMPLE.replace(old, new, 1), SAMPLE) is same


def test_a_seed_is_the_same_as_itself_however_it_writes_its_values():
    source = with_form(KNOB_FORMS[0])
    assert same_but_for_knobs(source, source)


def test_an_extra_knob_is_another_kernel():
    extra = SAMPLE.replace("[knobs]\n", "[knobs]\nEXTRA = { value = 1, choices = [1], layer = 'launch' }\n")
    assert not same_but_for_knobs(extra, SAMPLE)
    assert not same_but_for_knobs(SAMPLE, extra)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(SAMPLE) - 1), st.sampled_from(list("0159 \t\n#\"'[]{}=.,-_*/x")))
def test_a_source_with_one_byte_changed_is_the_same_only_where_a_knob_changed(position, byte):
    source = SAMPLE[:position] + byte + SAMPLE[position + 1 :]
    same = same_but_for_knobs(source, SAMPLE)
    assert same is (source == SAMPLE)  # no single byte turns 64 into another of the choices
