"""The planner: builds, limits, and what each scenario launches."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.manifest import read_manifest
from fitness.plan import Build, LaunchPlan, ScenarioPlan, TensorMapPlan, WorkspacePlan
from fitness.planner import plan_builds, plan_scenario, plan_suite
from fitness.rules import check_rules
from fitness.scenario import ElementType, Scenario, Suite, edge_scenarios

HEAD = """/*evo
contract = 1
name = "n"
targets = ["sm_90a"]
"""
LAUNCH = """
[[launch]]
kernel = "f"
grid = ["1"]
block = ["32"]
"""
FULL = (
    HEAD
    + """
supports = "head_dim <= 128 and heads % kv_heads == 0"
[defines]
HEAD_DIM = "head_dim"
LONG = "seqlen_k > 1024"
[knobs]
BLOCK_M = { value = 64, choices = [32, 64], layer = "schedule" }
[[tensor_map]]
tensor = "q"
box = ["64", 1, "BLOCK_M", 1]
swizzle = "128 if head_dim > 32 else 64"
[[tensor_map]]
tensor = "k"
box = [64, 1, 128, 1]
swizzle = 128
when = "LONG"
[[workspace]]
bytes = "batch * heads * seqlen_q * 4"
zeroed = true
[[workspace]]
bytes = "sm_count * 16"
when = "not LONG"
[[launch]]
kernel = "split"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = [64, 2]
shared_bytes = "2 * BLOCK_M * head_dim"
[[launch]]
kernel = "merge"
grid = ["min(sm_count, 100)"]
block = ["32"]
when = "LONG"
*/"""
)

BASE = Scenario(batch=2, heads=4, kv_heads=2, seqlen_q=100, seqlen_k=512, head_dim=64, causal=True)


def fault_of(source: str, scenario: Scenario = BASE) -> CandidateFault:
    with pytest.raises(CandidateFault) as caught:
        plan_scenario(read_manifest(source), scenario, 132)
    assert f"scenario {scenario.name}: " in caught.value.reason
    return caught.value


def test_a_scenario_is_worked_out():
    assert plan_scenario(read_manifest(FULL), BASE, 132) == ScenarioPlan(
        scenario=BASE,
        build=Build(defines=(("BLOCK_M", 64), ("HEAD_DIM", 64), ("LONG", 0)), element_type=ElementType.BF16),
        tensor_maps=(TensorMapPlan(tensor="q", box=(64, 1, 64, 1), swizzle=128), None),
        workspaces=(WorkspacePlan(size=3200, zeroed=True), WorkspacePlan(size=2112, zeroed=False)),
        launches=(LaunchPlan(kernel="split", grid=(2, 4, 2), block=(64, 2, 1), shared_bytes=8192),),
    )


def test_when_keeps_the_slots_of_maps_and_workspaces():
    plan = plan_scenario(read_manifest(FULL), replace(BASE, seqlen_k=2048), 132)
    assert plan.tensor_maps[1] == TensorMapPlan(tensor="k", box=(64, 1, 128, 1), swizzle=128)
    assert plan.workspaces[1] is None
    assert [launch.kernel for launch in plan.launches] == ["split", "merge"]
    assert plan.launches[1].grid == (100, 1, 1)


def test_a_scenario_outside_supports():
    fault = fault_of(FULL, replace(BASE, head_dim=256))
    assert fault.status is Status.UNSUPPORTED
    assert "it lies outside supports = 'head_dim <= 128 and heads % kv_heads == 0'" in fault.reason


def test_supports_may_use_defines_and_knobs():
    source = HEAD + 'supports = "GROUP * K == 2"\n[knobs]\nK = {value=1, choices=[1], layer="launch"}\n'
    source += '[defines]\nGROUP = "heads // kv_heads"' + LAUNCH + "*/"
    assert plan_scenario(read_manifest(source), BASE, 1).build.defines == (("K", 1), ("GROUP", 2))
    assert fault_of(source, replace(BASE, kv_heads=4)).status is Status.UNSUPPORTED


def test_defines_are_not_worked_out_for_what_supports_rules_out():
    source = HEAD + 'supports = "head_dim > 64"\n[defines]\nD = "64 // (head_dim - 64)"' + LAUNCH + "*/"
    assert fault_of(source).status is Status.UNSUPPORTED


def test_a_suite_and_its_edges():
    full, manifest = replace(BASE, causal=False), read_manifest(FULL)
    edges = edge_scenarios((BASE, replace(BASE, head_dim=256)))
    suite = Suite(name="s", scenarios=(BASE, full, replace(BASE, seqlen_k=2048)), edges=edges)
    plan = plan_suite(manifest, suite, 132)
    assert [scenario.scenario for scenario in plan.scenarios] == list(suite.scenarios)
    assert [edge.scenario for edge in plan.edges] == [edge for edge in edges if edge.head_dim == 64]
    assert [dict(build.defines)["LONG"] for build in plan.builds] == [0, 1]
    assert plan_builds(manifest, suite) == plan.builds


def test_edges_may_need_builds_of_their_own():
    suite = Suite(name="s", scenarios=(replace(BASE, seqlen_k=2048),), edges=(BASE, replace(BASE, head_dim=256)))
    assert [dict(build.defines)["LONG"] for build in plan_builds(read_manifest(FULL), suite)] == [1, 0]


def test_a_suite_with_a_scenario_outside_supports():
    suite = Suite(name="s", scenarios=(BASE, replace(BASE, head_dim=256)))
    for plan in (lambda m: plan_suite(m, suite, 132), lambda m: plan_builds(m, suite)):
        with pytest.raises(CandidateFault, match="d256 causal bf16: it lies outside supports") as caught:
            plan(read_manifest(FULL))
        assert caught.value.status is Status.UNSUPPORTED


def test_the_element_type_makes_builds_differ():
    suite = Suite(name="s", scenarios=(BASE, replace(BASE, element_type=ElementType.FP16)))
    flags = [build.flags[0] for build in plan_builds(read_manifest(FULL), suite)]
    assert flags == ["-DEVO_BF16=1", "-DEVO_FP16=1"]


@pytest.mark.parametrize("count", [32, 33])
def test_at_most_32_builds(count):
    source = HEAD + '[defines]\nD = "head_dim"' + LAUNCH + "*/"
    suite = Suite(name="s", scenarios=tuple(replace(BASE, head_dim=8 * (i + 1)) for i in range(count)))
    if count == 32:
        assert len(plan_builds(read_manifest(source), suite)) == 32
        return
    with pytest.raises(CandidateFault, match="suite s needs 33 builds; at most 32") as caught:
        plan_builds(read_manifest(source), suite)
    assert caught.value.status is Status.INVALID


@pytest.mark.parametrize(
    ("text", "accepted", "refused", "part"),
    [
        ("grid = [{}]\nblock = [1]", (1, 2**31 - 1), (0, -1, 2**31), "[[launch]] 1 (f): grid[0] is {}"),
        ("grid = [1, {}]\nblock = [1]", (1, 65535), (0, 65536), "[[launch]] 1 (f): grid[1] is {}"),
        ("grid = [1, 1, {}]\nblock = [1]", (1, 65535), (0, 65536), "[[launch]] 1 (f): grid[2] is {}"),
        ("grid = [1]\nblock = [{}]", (1, 1024), (0, 1025), "[[launch]] 1 (f): block[0] is {}"),
        ("grid = [1]\nblock = [1, {}]", (1, 1024), (0, 1025), "[[launch]] 1 (f): block[1] is {}"),
        ("grid = [1]\nblock = [1, 1, {}]", (1, 64), (0, 65), "[[launch]] 1 (f): block[2] is {}"),
        ("grid = [1]\nblock = [{}, 2]", (512,), (513,), "block is [{}, 2, 1], 1026 threads; expected at most 1024"),
        ("grid = [1]\nblock = [1]\nshared_bytes = {}", (0, 49152, 49153, 232448), (-1, 232449), "shared_bytes is {}"),
    ],
)
def test_launch_limits(text, accepted, refused, part):
    for value in accepted:
        plan_scenario(read_manifest(f'{HEAD}[[launch]]\nkernel = "f"\n{text.format(value)}\n*/'), BASE, 132)
    for value in refused:
        fault = fault_of(f'{HEAD}[[launch]]\nkernel = "f"\n{text.format(value)}\n*/')
        assert fault.status is Status.INVALID
        assert part.format(value) in fault.reason


@pytest.mark.parametrize(
    ("box", "swizzle", "part"),
    [
        ([64, 1, 128, 1], 128, ""),
        ([32, 1, 256, 1], 64, ""),
        ([8, 1, 1, 1], 32, ""),
        ([256, 1, 1, 1], 0, ""),
        ([72, 1, 1, 1], 128, "box[0] is 72, 144 bytes; expected a multiple of 16 bytes and at most the swizzle of 128"),
        ([4, 1, 1, 1], 0, "box[0] is 4, 8 bytes; expected a multiple of 16 bytes"),
        ([64, 0, 1, 1], 128, "box[1] is 0, from '0'; expected 1 to 256"),
        ([64, 1, 257, 1], 128, "box[2] is 257"),
        ([64, 1, 1, -1], 128, "box[3] is -1"),
        ([64, 1, 1, 1], 16, "swizzle is 16; expected one of 0, 32, 64, 128"),
        ([64, 1, 1, 1], 1, "swizzle is 1; expected one of"),
    ],
)
def test_tensor_map_limits(box, swizzle, part):
    source = f'{HEAD}[[tensor_map]]\ntensor = "v"\nbox = {box}\nswizzle = {swizzle}\n{LAUNCH}*/'
    if part:
        fault = fault_of(source)
        assert fault.status is Status.INVALID
        assert f"[[tensor_map]] 1: {part}" in fault.reason
    else:
        expected = TensorMapPlan(tensor="v", box=tuple(box), swizzle=swizzle)
        assert plan_scenario(read_manifest(source), BASE, 132).tensor_maps == (expected,)


@pytest.mark.parametrize(("size", "good"), [(1, True), (2**40, True), (0, False), (-4, False), (2**40 + 1, False)])
def test_workspace_limits(size, good):
    source = f"{HEAD}[[workspace]]\nbytes = {size}\n{LAUNCH}*/"
    if good:
        assert plan_scenario(read_manifest(source), BASE, 132).workspaces[0].size == size
    else:
        assert f"[[workspace]] 1: bytes is {size}, from '{size}'; expected 1 to {2**40}" in fault_of(source).reason


def test_what_is_left_out_is_not_worked_out():
    source = f'{HEAD}[[workspace]]\nbytes = "1 // 0"\nwhen = 0\n{LAUNCH}*/'
    assert plan_scenario(read_manifest(source), BASE, 132).workspaces == (None,)


def test_no_launch_left():
    assert "nothing would run" in fault_of(f"{HEAD}{LAUNCH}when = 0\n*/").reason


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('supports = "1 // (heads - 4)"', "supports: '1 // (heads - 4)': it divides by zero with heads = 4"),
        ('[defines]\nD = "head_dim % (head_dim - 64)"', "'head_dim % (head_dim - 64)': it divides by zero"),
        ('[[workspace]]\nbytes = "9223372036854775807 * batch"', "bytes: '9223372036854775807 * batch': a result is"),
    ],
)
def test_an_expression_that_fails(text, part):
    fault = fault_of(f"{HEAD}{text}\n{LAUNCH}*/")
    assert fault.status is Status.INVALID
    assert part in fault.reason


def test_a_failing_supports_of_an_edge_is_named_too():
    manifest = read_manifest(f'{HEAD}supports = "1 // (heads - 2) + 1"\n{LAUNCH}*/')
    suite = Suite(name="s", scenarios=(BASE,), edges=(replace(BASE, heads=2),))
    with pytest.raises(CandidateFault, match=r"scenario b2 h2 s100x512 d64 causal bf16: supports: .*divides by zero"):
        plan_suite(manifest, suite, 132)


def test_the_documented_example_keeps_the_contract():
    document = (Path(__file__).parents[2] / "docs/kernel-contract.md").read_text()
    (example,) = re.findall(r"```cuda\n(.*?)```", document, re.DOTALL)
    manifest = read_manifest(example)
    check_rules(example, manifest)
    suite = Suite(name="s", scenarios=(BASE, replace(BASE, head_dim=128, causal=False)), edges=edge_scenarios((BASE,)))
    plan = plan_suite(manifest, suite, 132)
    assert len(plan.edges) == len(suite.edges)
    assert [dict(build.defines)["HEAD_DIM"] for build in plan.builds] == [64, 128]
    assert plan.scenarios[0].launches == (
        LaunchPlan(kernel="attention_forward", grid=(2, 4, 2), block=(64, 1, 1), shared_bytes=0),
    )


def test_the_document_names_every_key():
    document = (Path(__file__).parents[2] / "docs/kernel-contract.md").read_text()
    keys = "contract name targets supports defines knobs value choices layer tensor_map tensor box swizzle when"
    for key in f"{keys} workspace bytes zeroed launch kernel grid block shared_bytes".split():
        assert f"`{key}`" in document or f"`[{key}]`" in document or f"`[[{key}]]`" in document, key
