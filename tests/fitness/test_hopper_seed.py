"""The Hopper seed: its forms and launches in numbers, and what NVRTC says of its builds. Nothing runs here."""

from itertools import product
from pathlib import Path

import pytest

from evo.suites import load_suite
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.fork_server import start_fork_server
from fitness.manifest import Layer, read_manifest, with_knobs
from fitness.plan import LaunchPlan, TensorMapPlan, WorkspacePlan
from fitness.planner import plan_builds, plan_scenario, plan_suite
from fitness.rules import check_rules
from fitness.scenario import ElementType, Scenario, Suite

KERNELS = Path(__file__).parents[2] / "kernels"
SOURCE = (KERNELS / "seed" / "hopper.cu").read_text()
MANIFEST = read_manifest(SOURCE)
SM_COUNT = 132
HEAD_DIMS = (64, 96, 128, 192, 256)
# At the start; in the long forms setmaxnreg deals 65536 out anew.
REGISTERS = {
    "short": {64: 98, 96: 156, 128: 128, 192: 236, 256: 228},
    "long": {64: 128, 96: 168, 128: 168, 192: 168, 256: 168},
}


def a_scenario(*, head_dim=128, seqlen_q=512, seqlen_k=512, batch=2, heads=8, causal=True, element=ElementType.BF16):
    return Scenario(
        batch=batch, heads=heads, kv_heads=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim, causal=causal,
        element_type=element,
    )  # fmt: skip


def a_suite(head_dims=HEAD_DIMS, elements=(ElementType.BF16,)):
    """Every form of each head dimension."""
    forms = ((1, False), (512, False), (512, True))
    return Suite(
        name="every form",
        scenarios=tuple(
            a_scenario(head_dim=head_dim, element=element, seqlen_q=length, causal=causal)
            for head_dim, element, (length, causal) in product(head_dims, elements, forms)
        ),
    )


@pytest.fixture(scope="module")
def compile_suite(tmp_path_factory):
    """A function from a source and a suite to the builds and their reports, for sm_90a."""
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=KERNELS / "include", timeout_s=120.0, memory_bytes=4 << 30,
        cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=2,
    )  # fmt: skip

    def compile_builds(source, suite):
        plan = plan_suite(read_manifest(source), suite, SM_COUNT)
        compiled = compiler.compile(source, plan.builds)
        require_kernels(plan, compiled)
        return [(dict(each.build.defines), each.report) for each in compiled]

    yield compile_builds
    compiler.close()


def test_it_keeps_the_rules_and_offers_knobs_on_every_layer_of_a_kernel():
    check_rules(SOURCE, MANIFEST)
    assert MANIFEST.targets == ("sm_90a",)
    assert {knob.layer for knob in MANIFEST.knobs} == set(Layer) - {Layer.MEASUREMENT}
    assert all(knob.value in knob.choices for knob in MANIFEST.knobs)


@pytest.mark.parametrize(("suite", "builds"), [("core26", 11), ("core8", 9), ("full182", 22), ("edge", 24)])
def test_a_suite_needs_few_builds(suite, builds):
    assert len(plan_builds(MANIFEST, load_suite(suite))) == builds


def test_it_supports_the_head_dims_of_the_suites_and_no_other():
    plan = plan_suite(MANIFEST, load_suite("edge"), SM_COUNT)
    assert len(plan.edges) == len(load_suite("edge").edges)
    odd = Suite(name="odd", scenarios=(a_scenario(),), edges=(a_scenario(head_dim=80), a_scenario(head_dim=32)))
    assert plan_suite(MANIFEST, odd, SM_COUNT).edges == ()


@pytest.mark.parametrize(
    ("head_dim", "grid", "threads", "tiles"),
    [
        (
            64,
            48,
            512,
            (2 + 1) * 192 + (3 + 3) * 128,
        ),  # rows of 128 bytes: 2 tiles of Q, 1 of O, 3 of K and of V
        (128, 64, 384, ((1 + 1) * 128 + (3 + 2) * 128) * 2),
        (192, 64, 384, (128 + (2 + 2) * 96) * 3),
        (256, 64, 384, (128 + (2 + 2) * 64) * 4),
    ],
)
def test_a_long_scenario_is_one_launch(head_dim, grid, threads, tiles):
    plan = plan_scenario(MANIFEST, a_scenario(head_dim=head_dim), SM_COUNT)
    launch = LaunchPlan(kernel="attention", grid=(grid, 1, 1), block=(threads, 1, 1), shared_bytes=tiles * 128 + 1024)
    assert plan.launches == (launch,)
    assert plan.tensor_maps[0] == TensorMapPlan(tensor="q", box=(64, 1, 64, 1), swizzle=128)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_long_blocks_are_no_more_than_multiprocessors(head_dim):
    plan = plan_scenario(MANIFEST, a_scenario(seqlen_q=16384, head_dim=head_dim), SM_COUNT)
    assert plan.launches[0].grid == (SM_COUNT, 1, 1)


def test_a_short_scenario_splits_the_keys_and_joins_the_parts():
    plan = plan_scenario(MANIFEST, a_scenario(seqlen_q=5, seqlen_k=8192, batch=16), SM_COUNT)
    rows, parts = 16 * 8 * 5, 9  # four blocks a multiprocessor: 528 over 32 kv heads' two tiles of packed rows
    attention, join = plan.launches
    assert (attention.kernel, attention.grid) == ("attention", (16 * 2, 2, parts))
    assert join == LaunchPlan(kernel="join_parts", grid=(rows, 1, 1), block=(32, parts, 1), shared_bytes=0)
    assert plan.workspaces == (WorkspacePlan(size=parts * rows * (128 + 1) * 4, zeroed=False),)
    assert plan.tensor_maps == (None,) * 4


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_the_greatest_choice_of_every_knob_stays_within_shared_memory(head_dim):
    greatest = read_manifest(with_knobs(SOURCE, {knob.name: max(knob.choices) for knob in MANIFEST.knobs}))
    for seqlen_q in (1, 512):  # plan_scenario refuses what does not fit; 1024 bytes are the barriers'
        plan = plan_scenario(greatest, a_scenario(head_dim=head_dim, seqlen_q=seqlen_q), SM_COUNT)
        assert 0 < plan.launches[0].shared_bytes <= 232448 - 1024


@pytest.mark.parametrize(
    ("source", "head_dims", "element"),
    [
        (SOURCE, HEAD_DIMS, ElementType.BF16),
        (SOURCE, (64, 128), ElementType.FP16),
    ],
    ids=["bf16", "fp16"],
)
def test_nothing_spills_and_no_product_is_serialised(source, head_dims, element, compile_suite):
    for defines, report in compile_suite(source, a_suite(head_dims, (element,))):
        assert not report.advisories, report.name
        spilled = [kernel.spill_store_bytes + kernel.spill_load_bytes + kernel.stack_bytes for kernel in report.kernels]
        assert not any(spilled), report.name
        registers = {kernel.kernel: kernel.registers for kernel in report.kernels}
        assert registers.get("join_parts", 0) <= 32
        assert registers["attention"] <= REGISTERS["short" if defines["SHORT"] else "long"][defines["HEAD_DIM"]]


@pytest.mark.parametrize("pick", [min, max])
def test_the_extremes_of_the_knobs_compile_without_a_remark(pick, compile_suite):
    source = with_knobs(SOURCE, {knob.name: pick(knob.choices) for knob in MANIFEST.knobs})
    for _, report in compile_suite(source, a_suite((64, 128))):
        assert not report.advisories, report.name
