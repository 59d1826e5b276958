"""Kernels of a first search, measured on an H200: what NVRTC says of them foretells which of their builds collapsed.

The kernels and the table of their measurements are data; nothing runs here. A build collapsed where its kernel reached,
over the two longer lengths, less than 0.85 of the speed of the better of its parents.
"""

import json
from math import sqrt
from pathlib import Path

import pytest

from fitness.build_cache import BuildCache
from fitness.compile_log import foretells_collapse
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.fork_server import start_fork_server
from fitness.manifest import read_manifest
from fitness.planner import plan_builds, plan_suite
from fitness.rules import check_rules
from fitness.scenario import Scenario, Suite

HERE = Path(__file__).parent
LENGTHS = (512, 4096, 16384)
HEAD_DIMS = (64, 128)
SM_COUNT = 132
KERNELS = sorted(path.stem for path in (HERE / "kernels" / "hopper").glob("*.cu"))
COLLAPSED = {
    ("d_i", 64, 0), ("d_i", 64, 1), ("d_i", 128, 0), ("d_i", 128, 1), ("e3", 64, 0), ("e3", 64, 1), ("e3", 128, 1),
    ("g1", 64, 0), ("h3", 64, 1),
}  # fmt: skip
SPILLING = {("d_i", 64, 0), ("d_i", 64, 1), ("g1", 64, 0)}  # of the builds that are compiled here


def a_scenario(head_dim, causal, seqlen):
    heads = 2048 // head_dim
    return Scenario(
        batch=16384 // seqlen, heads=heads, kv_heads=heads, seqlen_q=seqlen, seqlen_k=seqlen, head_dim=head_dim,
        causal=bool(causal),
    )  # fmt: skip


def a_suite(head_dims=HEAD_DIMS):
    scenarios = (a_scenario(hd, causal, length) for hd in head_dims for causal in (0, 1) for length in LENGTHS)
    return Suite(name="hopper", scenarios=tuple(scenarios))


def source_of(name):
    return (HERE / "kernels" / "hopper" / f"{name}.cu").read_text()


@pytest.fixture(scope="module")
def record():
    """The table by kernel."""
    lines = (HERE / "data" / "hopper_record.jsonl").read_text().splitlines()
    return {entry["id"]: entry for entry in map(json.loads, lines)}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=HERE.parents[1] / "kernels" / "include", timeout_s=120.0, memory_bytes=4 << 30,
        cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=2,
    )  # fmt: skip
    yield compiler
    compiler.close()


@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_meets_the_contract(name, record):
    manifest = read_manifest(source_of(name))
    check_rules(source_of(name), manifest)
    assert manifest.targets == ("sm_90a",)
    assert len(plan_builds(manifest, a_suite())) == 4
    for scenario in plan_suite(manifest, a_suite(), SM_COUNT).scenarios:
        (launch,) = scenario.launches
        rows, threads = scenario.tensor_maps[0].box[2], launch.block[0]
        assert threads == 2 * rows + 128  # one producer, and a consumer warpgroup for each 64 rows
        assert launch.grid[0] * launch.grid[1] * launch.grid[2] >= SM_COUNT - scenario.scenario.batch
    assert record[name]["speedups"].keys() == {scenario.name for scenario in a_suite().scenarios}


def test_the_table_tells_which_builds_collapsed(record):
    def long_speed(name, head_dim, causal):
        speeds = [record[name]["speedups"][a_scenario(head_dim, causal, length).name] for length in LENGTHS[1:]]
        return sqrt(speeds[0] * speeds[1])

    collapsed = {
        (name, head_dim, causal)
        for name, entry in record.items()
        for head_dim in HEAD_DIMS
        for causal in (0, 1)
        if entry["parents"]
        and long_speed(name, head_dim, causal)
        < 0.85 * max(long_speed(parent, head_dim, causal) for parent in entry["parents"])
    }
    assert collapsed == COLLAPSED


@pytest.mark.parametrize(
    ("name", "head_dims"),
    [("base", HEAD_DIMS), ("c_i", HEAD_DIMS), ("d_i", HEAD_DIMS), ("e3", HEAD_DIMS), ("f5", (64,)), ("g1", (64,)),
     ("h1", HEAD_DIMS), ("h3", (64,))],
)  # fmt: skip
def test_the_compilers_advisory_foretells_the_collapse(name, head_dims, compiler):
    plan = plan_suite(read_manifest(source_of(name)), a_suite(head_dims), SM_COUNT)
    compiled = compiler.compile(source_of(name), plan.builds)
    require_kernels(plan, compiled)
    threads = {scenario.build: scenario.launches[0].block[0] for scenario in plan.scenarios}
    foretold, spilling = set(), set()
    for each in compiled:
        defines = dict(each.build.defines)
        build = (name, defines["HD"], defines["CAUSAL"])
        (kernel,) = each.report.kernels
        assert kernel.kernel == "fwd"
        assert kernel.registers == {384: 168, 512: 128}[threads[each.build]]  # 65536 registers, in steps of 8
        if any(map(foretells_collapse, each.report.advisories)):
            foretold.add(build)
        if kernel.spill_store_bytes:
            spilling.add(build)
    compiled_here = {(name, head_dim, causal) for head_dim in head_dims for causal in (0, 1)}
    assert foretold == COLLAPSED & compiled_here
    assert spilling == SPILLING & compiled_here
