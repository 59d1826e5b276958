"""The tensor-core seed: its forms and launches in numbers, and what NVRTC says of its builds. Nothing runs here."""

from itertools import product
from pathlib import Path

import pytest

from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.fork_server import start_fork_server
from fitness.manifest import Layer, read_manifest, with_knobs
from fitness.plan import LaunchPlan, WorkspacePlan
from fitness.planner import plan_builds, plan_scenario, plan_suite
from fitness.rules import check_rules
from fitness.scenario import ElementType, Scenario, Suite, edge_scenarios

KERNELS = Path(__file__).parents[2] / "kernels"
SOURCE = (KERNELS / "seed" / "mma.cu").read_text()
MANIFEST = read_manifest(SOURCE)
SM_COUNT = 132
HEAD_DIMS = (64, 96, 128, 192, 256)


def a_scenario(*, head_dim=128, seqlen_q=512, seqlen_k=512, batch=2, heads=8, kv_heads=2, element=ElementType.BF16):
    return Scenario(
        batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim,
        causal=True, element_type=element,
    )  # fmt: skip


def a_suite(head_dims=HEAD_DIMS, elements=(ElementType.BF16,)):
    """Both forms of each head dimension."""
    cells = product(head_dims, elements, (1, 512))
    return Suite(
        name="both forms",
        scenarios=tuple(a_scenario(head_dim=hd, element=element, seqlen_q=length) for hd, element, length in cells),
    )


@pytest.fixture(scope="module")
def compile_for(tmp_path_factory):
    """A function from an architecture, a source and a suite to the builds' reports."""
    pytest.importorskip("cupy")
    start_fork_server()
    opened = []

    def compile_suite(arch, source, suite):
        compiler = NvrtcCompiler(
            arch=arch, include_dir=KERNELS / "include", timeout_s=120.0, memory_bytes=4 << 30,
            cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=2,
        )  # fmt: skip
        opened.append(compiler)
        plan = plan_suite(read_manifest(source), suite, SM_COUNT)
        compiled = compiler.compile(source, plan.builds)
        require_kernels(plan, compiled)
        return [each.report for each in compiled]

    yield compile_suite
    for compiler in opened:
        compiler.close()


def test_it_keeps_the_rules_and_offers_knobs_on_every_layer_of_a_kernel():
    check_rules(SOURCE, MANIFEST)
    assert MANIFEST.targets == ("sm_80",)
    assert {knob.layer for knob in MANIFEST.knobs} == set(Layer) - {Layer.MEASUREMENT}
    assert all(knob.value in knob.choices for knob in MANIFEST.knobs)


def test_all_head_dims_both_types_and_the_edges_fit_into_one_suites_builds():
    suite = a_suite(elements=tuple(ElementType))
    with_edges = Suite(name="edges", scenarios=suite.scenarios, edges=edge_scenarios(suite.scenarios))
    assert len(plan_builds(MANIFEST, with_edges)) == len(HEAD_DIMS) * len(ElementType) * 2


def test_a_long_scenario_is_one_launch_of_a_block_for_each_tile_of_queries_of_each_head():
    plan = plan_scenario(MANIFEST, a_scenario(seqlen_q=513), SM_COUNT)
    shared_bytes = (128 + 2 * 32) * 128 * 2  # Q, and one tile of 32 keys each of K and V
    assert plan.launches == (
        LaunchPlan(kernel="attention", grid=(2 * 8 * 5, 1, 1), block=(128, 1, 1), shared_bytes=shared_bytes),
    )
    assert plan.workspaces == (None,)


@pytest.mark.parametrize(
    ("batch", "seqlen_q", "seqlen_k", "row_tiles", "parts"),
    [
        (1, 1, 8192, 1, 32),  # never more than 32
        (1, 1, 1000, 1, 8),  # never less than two tiles of 64 keys
        (64, 1, 8192, 1, 2),  # four blocks a multiprocessor: 528 over 512 kv heads
        (32, 5, 8192, 2, 2),  # 20 rows, packed from 4 heads, are two tiles
        (1, 1, 1, 1, 1),
    ],
)
def test_a_short_scenario_splits_the_keys_and_joins_the_parts(batch, seqlen_q, seqlen_k, row_tiles, parts):
    scenario = a_scenario(batch=batch, heads=32, kv_heads=8, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
    plan = plan_scenario(MANIFEST, scenario, SM_COUNT)
    rows = batch * 32 * seqlen_q
    attention, join = plan.launches
    assert (attention.kernel, attention.grid) == ("attention", (batch * 8, row_tiles, parts))
    assert join == LaunchPlan(kernel="join_parts", grid=(rows, 1, 1), block=(32, parts, 1), shared_bytes=0)
    assert plan.workspaces == (WorkspacePlan(size=parts * rows * (128 + 1) * 4, zeroed=False),)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_the_greatest_choice_of_every_knob_stays_within_shared_memory(head_dim):
    greatest = read_manifest(with_knobs(SOURCE, {knob.name: max(knob.choices) for knob in MANIFEST.knobs}))
    for seqlen_q in (1, 512):  # plan_scenario refuses what does not fit
        plan = plan_scenario(greatest, a_scenario(head_dim=head_dim, seqlen_q=seqlen_q), SM_COUNT)
        assert plan.launches[0].shared_bytes > 0


@pytest.mark.parametrize(("arch", "head_dims"), [("sm_90a", HEAD_DIMS), ("sm_80", (64, 128, 256))])
def test_the_default_knobs_leave_every_value_in_registers(arch, head_dims, compile_for):
    for report in compile_for(arch, SOURCE, a_suite(head_dims)):
        attention, join = sorted(report.kernels, key=lambda kernel: kernel.kernel)
        assert (attention.kernel, join.kernel) == ("attention", "join_parts")
        assert join.registers <= 64  # 1024 threads share 65536
        assert [kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in report.kernels] == [0, 0], report.name
        assert [kernel.stack_bytes for kernel in report.kernels] == [0, 0], report.name
        assert not report.advisories


@pytest.mark.parametrize("pick", [min, max])
def test_the_extremes_of_the_knobs_compile_for_either_type(pick, compile_for):
    source = with_knobs(SOURCE, {knob.name: pick(knob.choices) for knob in MANIFEST.knobs})
    reports = compile_for("sm_90a", source, a_suite((128,), tuple(ElementType)))
    assert len(reports) == 4
