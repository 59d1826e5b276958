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
from tests.fitness.planted import expected_on_gpu
from tests.gpu.sources import CHEATS, PORTABLE, ROOT, kernel, shape

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


def fault(source, compiler):
    """The fault of a source, as far as a machine without a GPU can tell; None where it has none."""
    try:
        manifest = read_manifest(source)
        check_rules(source, manifest)
        plan = plan_suite(manifest, SUITE, SM_COUNT)
        require_kernels(plan, compiler.compile(source, plan.builds))
    except CandidateFault as found:
        return found
    return None


def complaint(path, compiler):
    """What a machine without a GPU finds of a planted kernel, if it is not what it should find; else ""."""
    expected, found = expected_on_gpu(path), fault(path.read_text(), compiler)
    if expected.status not in BEFORE_A_RUN:
        return "" if found is None else f"{found.status}: {found.reason}"
    return "it is not refused" if found is None else expected.complaint(found.status, found.reason)


def test_there_are_enough_of_them_and_all_are_different():
    planted = [*CHEATS, *PORTABLE]
    assert len(planted) >= 75
    assert len({path.stem for path in planted}) >= 70
    assert len({path.read_text() for path in planted}) == len(planted)


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_what_a_compiler_can_tell_of_a_cheat_is_told_without_a_gpu(path, compiler):
    assert complaint(path, compiler) == ""


def test_what_is_refused_without_a_gpu_says_why():
    told = [path for path in [*CHEATS, *PORTABLE] if expected_on_gpu(path).status in BEFORE_A_RUN]
    assert [path.name for path in told if not expected_on_gpu(path).piece] == []


def test_the_portable_kernels_compile_for_a_gpu_or_are_refused_as_they_say(compiler):
    complaints = {path.stem: complaint(path, compiler) for path in PORTABLE}
    assert {name: complaint for name, complaint in complaints.items() if complaint} == {}


def test_the_kernel_for_racecheck_compiles(compiler):
    assert fault(kernel("racing"), compiler) is None
