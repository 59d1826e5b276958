"""Every planted kernel, those for a GPU alone and the portable ones, through the whole evaluation on a GPU."""

import re
import shutil
import subprocess
import sys

import pytest

from fitness.evaluation import Status
from tests.fitness.planted import expected_on_gpu
from tests.gpu.sources import CHEATS, HERE, PORTABLE, ROOT, rows, shape

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
def racecheck():
    """A function that has compute-sanitizer watch one call of a source: the number of hazards that it reports."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on the PATH")

    def hazards(path):
        options = ["--tool", "racecheck", "--kernel-name", "kernel_substring=attention"]
        command = [sanitizer, *options, sys.executable, str(HERE / "one_call.py"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
        summary = re.search(r"RACECHECK SUMMARY: (\d+) hazard", done.stdout)
        assert summary, done.stdout + done.stderr
        return int(summary[1])

    return hazards


def test_racecheck_tells_the_missing_barrier_that_no_output_shows(racecheck):
    assert racecheck(HERE / "kernels" / "racing.cu") > 0


def test_racecheck_finds_nothing_in_a_seed(racecheck):
    assert racecheck(ROOT / "kernels" / "seed" / "tiled.cu") == 0
