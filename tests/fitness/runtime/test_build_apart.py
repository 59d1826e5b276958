"""Builds in a Python of their own: kept from process to process, and each fault with whose it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.plan import Build
from fitness.runtime.build_apart import BuilderApart
from fitness.scenario import ElementType

ROOT = Path(__file__).parents[3]
INCLUDE_DIR = ROOT / "kernels" / "include"
SOURCE = '#include "attention.cuh"\nextern "C" __global__ void f(const __grid_constant__ AttentionParams p) {}\n'
BUILD = Build(defines=(("HEAD_DIM", 64),), element_type=ElementType.BF16)


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cupy")


def builder(cache, source=SOURCE, include_dir=INCLUDE_DIR):
    return BuilderApart(source=source, include_dir=include_dir, cache=cache)


def test_a_build_is_kept(tmp_path):
    binary = builder(tmp_path).build(BUILD, "sm_90a")
    first = binary.stat().st_mtime_ns
    assert binary.read_bytes()[:4] == b"\x7fELF"
    assert binary.parent == tmp_path
    assert builder(tmp_path).build(BUILD, "sm_90a") == binary
    assert binary.stat().st_mtime_ns == first
    assert builder(tmp_path).build(BUILD, "sm_80") != binary


def test_the_sources_fault_is_the_candidates(tmp_path):
    with pytest.raises(CandidateFault, match=r"expected a declaration|error") as caught:
        builder(tmp_path, source=SOURCE + "}\n").build(BUILD, "sm_90a")
    assert caught.value.status is Status.COMPILE_ERROR


def test_a_missing_header_is_the_environments(tmp_path):
    with pytest.raises(EnvironmentFault, match="the contract's header cannot be read"):
        builder(tmp_path, include_dir=tmp_path).build(BUILD, "sm_90a")


def test_a_cache_that_cannot_be_written_is_the_environments(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"the compile cache .*file cannot be used"):
        builder(tmp_path / "file").build(BUILD, "sm_90a")


def test_a_script_without_a_main_guard_can_build(tmp_path):
    """multiprocessing would import the script once more in its children; and what the script prints stays its own."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom tests.fitness.runtime.test_build_apart import BUILD, builder\n"
        f"print(builder(Path({str(tmp_path)!r}) / 'cache').build(BUILD, 'sm_90a').suffix)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert (done.stdout, done.returncode) == (".cubin\n", 0), done.stderr
