"""The champion, which the campaign bred: its rules, its builds, and what NVRTC says of them. Nothing runs here."""

import hashlib
import json
from pathlib import Path

import pytest

from evo.suites import load_suite
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.fork_server import start_fork_server
from fitness.manifest import read_manifest
from fitness.planner import plan_builds, plan_scenario, plan_suite
from fitness.rules import check_rules
from fitness.sanitizer import TOOLS

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "kernels" / "champion" / "hopper_attention.cu").read_text()
MANIFEST = read_manifest(SOURCE)
SM_COUNT = 132


def test_it_keeps_the_rules():
    check_rules(SOURCE, MANIFEST)
    assert [len(plan_builds(MANIFEST, load_suite(name))) for name in ("core26", "edge", "full182")] == [16, 27, 32]


def test_its_measurements_are_of_this_very_text():
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    campaign = json.loads((ROOT / "docs" / "results" / "hopper-campaign.json").read_text())
    assert campaign["last"]["source_sha256"] == digest
    assert _record("audit")["source_sha256"] == digest
    for baseline in ("fa3", "cudnn"):
        assert {each["source_sha256"] for each in _record(baseline)["rounds"][baseline]} == {digest}


def test_its_audit_passed_and_no_check_was_skipped_but_the_one_that_was_not_there_yet():
    audit = _record("audit")["audit"]
    assert audit["passed"] is True
    findings = {check["name"]: check["finding"] for check in audit["checks"]}
    assert findings.pop("cycles inside against time outside") == "skipped"
    names = ("new inputs", "bulk against single calls", "time against work", *TOOLS, "full182")
    assert findings == dict.fromkeys(names, "passed")


def test_a_single_decode_is_one_launch_of_clusters():
    scenario = next(each for each in load_suite("core26").scenarios if each.name.startswith("b1 h32/8 s1x8192"))
    [launch] = plan_scenario(MANIFEST, scenario, SM_COUNT).launches
    assert launch.grid == (8, 1, 8)  # eight kv heads, a cluster of eight blocks each


def test_no_build_of_core26_is_serialised_and_only_head_dim_256_spills_a_few_registers(tmp_path):
    pytest.importorskip("cupy")
    start_fork_server()
    plan = plan_suite(MANIFEST, load_suite("core26"), SM_COUNT)
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=ROOT / "kernels" / "include", timeout_s=120.0, memory_bytes=4 << 30,
        cache=BuildCache(tmp_path), processes=2,
    )  # fmt: skip
    try:
        compiled = compiler.compile(SOURCE, plan.builds)
        require_kernels(plan, compiled)
    finally:
        compiler.close()
    for build in compiled:
        assert not build.report.advisories, build.report.name
        wide = dict(build.build.defines)["HEAD_DIM"] == 256
        for kernel in build.report.kernels:
            assert kernel.spill_store_bytes <= (60 if wide else 0), build.report.name
            assert kernel.registers <= 236


def _record(name):
    return json.loads((ROOT / "docs" / "results" / f"h200-champion-{name}.json").read_text())
