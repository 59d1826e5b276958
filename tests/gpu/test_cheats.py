"""Every planted kernel, those for a GPU alone and the portable ones, through the whole evaluation on a GPU."""

import pytest

from fitness.audit_record import Finding
from fitness.evaluation import Status
from fitness.manifest import read_manifest
from fitness.planner import plan_scenario
from fitness.sanitized import Sanitized
from fitness.sanitizer import find_sanitizer
from tests.fitness.planted import expected_on_gpu
from tests.gpu.sources import CHEATS, HERE, HOST_KERNELS, PORTABLE, ROOT, rows, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

SCENARIOS = (
    shape(batch=1, heads=4, kv_heads=2, seqlen_q=72, seqlen_k=72),
    shape(batch=1, heads=2, kv_heads=2, seqlen_q=40, seqlen_k=96, causal=False),
    shape(batch=1, heads=2, kv_heads=1, seqlen_q=130),
)
EDGES = (shape(batch=1, heads=2, kv_heads=2, seqlen_q=40, seqlen_k=9),)
TELLING = [path for path in PORTABLE if expected_on_gpu(path).status is not None]


@pytest.mark.parametrize("path", [*CHEATS, *TELLING], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_planted_kernel_gets_its_status_for_its_own_reason(judge, path):
    found = judge(path.read_text(), SCENARIOS, edges=EDGES, call_timeout_s=4.0)
    assert expected_on_gpu(path).complaint(found.status, found.reason) == ""


def test_a_good_kernel_passes_after_them_and_gives_the_same_bits_twice(judge):
    good = judge(rows(), SCENARIOS, edges=EDGES)
    assert (good.status, good.reason, good.deterministic) == (Status.PASSED, "", True)


@pytest.fixture(scope="module")
def racecheck(gpu, compiler):
    """A function that has racecheck watch one call of a source, as an audit does: what it says."""
    sanitizer = find_sanitizer()

    def check(path):
        source = path.read_text()
        plan = plan_scenario(read_manifest(source), shape(), gpu.sm_count)
        (build,) = compiler.compile(source, [plan.build])
        found = sanitizer.check("racecheck", Sanitized(plans=((plan, build.binary),), device_index=0, rng_seed=1))
        if "neither on the PATH" in found.detail:
            pytest.skip(found.detail)
        return found

    return check


@pytest.mark.parametrize(
    "path",
    [HERE / "kernels" / "racing.cu", HOST_KERNELS / "portable" / "missing_barrier.cu"],
    ids=lambda path: path.stem,
)
def test_a_race_in_shared_memory_is_told_by_racecheck_whatever_the_output(racecheck, path):
    found = racecheck(path)
    assert found.finding is Finding.FAILED, found.detail
    assert "attention_forward" in found.detail


@pytest.mark.parametrize("name", ["last_block_wins", "racing_threads"])
def test_of_a_race_in_global_memory_racecheck_knows_nothing(racecheck, name):
    """It watches shared memory alone; what tells these are the host's two orders, in every run of the tests."""
    found = racecheck(HOST_KERNELS / "cheats" / f"{name}.cu")
    assert found.finding is Finding.PASSED, found.detail


def test_racecheck_finds_nothing_in_a_seed(racecheck):
    found = racecheck(ROOT / "kernels" / "seed" / "tiled.cu")
    assert found.finding is Finding.PASSED, found.detail
