"""The kernels that cheat on a GPU, compiled for one: what no compiler may let through, and what only a run can tell."""

import pytest

from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler, require_kernels
from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.fork_server import start_fork_server
from fitness.manifest import read_manifest
from fitness.planner import plan_suite
from fitness.rules import check_rules
from fitness.scenario import Suite
from tests.gpu.sources import CHEATS, PORTABLE, ROOT, expected_status, kernel, shape

BEFORE_A_RUN = (Status.INVALID, Status.UNSUPPORTED, Status.COMPILE_ERROR)
SUITE = Suite(name="one", scenarios=(shape(),))
SM_COUNT = 132


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    pytest.importorskip("cupy")
    start_fork_server()
    compiler = NvrtcCompiler(
        arch="sm_90a", include_dir=ROOT / "kernels" / "include", timeout_s=60.0, memory_bytes=4 << 30,
        cache=BuildCache(tmp_path_factory.mktemp("cache")), processes=2,
    )  # fmt: skip
    yield compiler
    compiler.close()


def compiled(source, compiler):
    """The fault of a source, as far as a machine without a GPU can tell; "" where it has none."""
    try:
        manifest = read_manifest(source)
        check_rules(source, manifest)
        plan = plan_suite(manifest, SUITE, SM_COUNT)
        require_kernels(plan, compiler.compile(source, plan.builds))
    except CandidateFault as fault:
        return fault.status
    return ""


def test_there_are_enough_of_them_and_all_are_different():
    planted = [*CHEATS, *PORTABLE]
    assert len(planted) >= 75
    assert len({path.stem for path in planted}) >= 70
    assert len({path.read_text() for path in planted}) == len(planted)


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_what_a_compiler_can_tell_of_a_cheat_is_told_without_a_gpu(path, compiler):
    status = expected_status(path)
    assert compiled(path.read_text(), compiler) == (status if status in BEFORE_A_RUN else "")


def test_the_portable_kernels_compile_for_a_gpu_or_are_refused_there_as_here(compiler):
    found = {path.stem: compiled(path.read_text(), compiler) for path in PORTABLE}
    expected = {path.stem: expected_status(path) for path in PORTABLE}
    assert found == {name: status if status in BEFORE_A_RUN else "" for name, status in expected.items()}


def test_the_kernel_for_racecheck_compiles(compiler):
    assert compiled(kernel("racing"), compiler) == ""
