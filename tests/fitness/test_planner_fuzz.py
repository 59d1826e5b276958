"""Whatever expressions a manifest holds, a launch gets sizes that a device accepts, or the candidate is at fault."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest
from fitness.plan import ScenarioPlan
from fitness.planner import plan_scenario
from fitness.scenario import Scenario

SCENARIO = Scenario(batch=2, heads=8, kv_heads=2, seqlen_q=513, seqlen_k=1024, head_dim=64, causal=True)
MANIFEST = """/*evo
contract = 1
name = "n"
targets = ["sm_90a"]
[defines]
WIDE = "{define}"
[[tensor_map]]
tensor = "k"
box = ["{size}", "1", "{other}", "1"]
swizzle = "{flag}"
[[workspace]]
bytes = "{other}"
when = "{flag}"
[[launch]]
kernel = "f"
grid = ["{size}", "{other}", "{flag}"]
block = ["{other}", "{size}"]
shared_bytes = "{flag}"
*/
"""
FIELDS = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "causal", "bf16", "sm_count")
NAMES = st.sampled_from(FIELDS)
NUMBERS = st.one_of(st.integers(0, 300), st.sampled_from([65535, 65536, 2**31, 2**40, 2**62])).map(str)
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, NUMBERS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(st.sampled_from(["cdiv", "min", "max"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    ),
    max_leaves=6,
)
# What a grid is likely to accept, so that the plan of some examples does come about.
MILD = st.one_of(st.sampled_from(["32", "64", "128", "0", "1", "head_dim", "cdiv(seqlen_q, 64)", "heads"]), EXPRESSIONS)
DEFINES = st.sampled_from(["head_dim", "causal", "seqlen_k > 1024", "heads // kv_heads", "2 * head_dim"])


def planned(**expressions: str | int) -> ScenarioPlan | CandidateFault:
    try:
        return plan_scenario(read_manifest(MANIFEST.format(**expressions)), SCENARIO, 132)
    except CandidateFault as fault:
        return fault


@settings(max_examples=150, deadline=None)
@given(define=DEFINES, size=MILD, other=MILD, flag=MILD)
def test_sizes_are_in_range_or_the_candidate_is_at_fault(define, size, other, flag):
    plan = planned(define=define, size=size, other=other, flag=flag)
    if isinstance(plan, CandidateFault):
        assert plan.status is Status.INVALID
        assert 0 < len(plan.reason) < 1000
        return
    (launch,), (box,), (space,) = plan.launches, plan.tensor_maps, plan.workspaces
    assert all(1 <= side <= most for side, most in zip(launch.grid, (2**31 - 1, 65535, 65535), strict=True))
    assert all(1 <= side <= most for side, most in zip(launch.block, (1024, 1024, 64), strict=True))
    assert launch.block[0] * launch.block[1] * launch.block[2] <= 1024
    assert 0 <= launch.shared_bytes <= 232448
    assert box is None or all(1 <= side <= 256 for side in box.box)
    assert space is None or 1 <= space.size <= 2**40


@pytest.mark.parametrize(
    "text",
    [
        "().__class__", "heads.__class__", "__import__", "open", "eval", "exec(1, 2)", "lambda: 1",
        "[h for h in heads]", "heads if", "f'{heads}'", "heads.real", "(heads := 3)", "*heads", "min(*heads, 1)",
        "min(heads, key=1)", "print", "globals()", "max(heads, max)", "cdiv.__globals__", "not_there", "heads @ heads",
        "heads == 'x'", "9 ** 9 ** 9", "1 << 999999", "heads; 1", "yield heads", "...", "{heads}", "heads[0]",
        "min(heads, (1, 2))", "__builtins__",
    ],
)  # fmt: skip
def test_nothing_of_python_can_be_reached(text):
    fault = planned(define="head_dim", size=text, other=1, flag=0)
    assert isinstance(fault, CandidateFault)
    assert fault.status is Status.INVALID
