"""Kernels that are wrong on purpose get their status and its reason, and a good one after them still passes.

Real stages throughout: manifest, rules, g++, the worker's process, the gate. What each must get: `planted.py`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitness.backends.host_compiler import HostCompiler
from fitness.build_cache import BuildCache
from fitness.evaluation import Environment, Status
from fitness.evaluator import Evaluator, Target
from fitness.fork_server import start_fork_server
from fitness.inputs import Distribution
from fitness.judge_settings import JudgeSettings
from fitness.process_limits import ProcessLimits
from fitness.scenario import Suite
from fitness.worker import PRELOAD, BackendKind, WorkerSettings, open_worker
from tests.fitness.fake_device import scenario
from tests.fitness.planted import expected_on_gpu, expected_on_host

ROOT = Path(__file__).parents[2]
KERNELS = Path(__file__).with_name("kernels")
PLANTED = [path for kind in ("portable", "cheats") for path in sorted((KERNELS / kind).glob("*.cu"))]
SUITE = Suite(
    name="tiny",
    scenarios=(
        scenario(heads=4, kv_heads=2, seqlen_q=72, seqlen_k=72, head_dim=64),
        scenario(heads=2, kv_heads=2, seqlen_q=40, seqlen_k=96, head_dim=64, causal=False),
    ),
    edges=(scenario(heads=2, kv_heads=2, seqlen_q=40, seqlen_k=9, head_dim=64),),
)  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the host backend needs g++")


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory) -> Iterator[Evaluator]:
    start_fork_server(PRELOAD)
    compiler = HostCompiler(
        include_dir=ROOT / "kernels" / "include", cache=BuildCache(tmp_path_factory.mktemp("builds")), processes=2,
        timeout_s=30.0, memory_bytes=4 << 30,
    )  # fmt: skip
    environment = Environment(
        backend="host", device="processor", driver="", compiler=compiler.version, baseline="sdpa", baseline_version=""
    )
    target = Target(
        names=frozenset({"portable"}), sm_count=1, environment=environment, compiling_disturbs=True
    )
    settings = JudgeSettings(
        distributions=(Distribution.NORMAL, Distribution.SMALL, Distribution.LARGE), repeats=2, least_repeats=1,
        warmups=1, bootstrap_draws=20, call_timeout_s=2.0,
    )  # fmt: skip
    worker_settings = WorkerSettings(
        backend=BackendKind.HOST, baseline="sdpa", limits=ProcessLimits(memory_bytes=8 << 30)
    )
    with open_worker(worker_settings) as worker:
        yield Evaluator(
            suite=SUITE, target=target, compiler=compiler, worker=worker, settings=settings, may_run=lambda source: True
        )


def seed(name: str) -> str:
    return (ROOT / "kernels" / "seed" / f"{name}.cu").read_text()


def test_a_planted_kernel_is_held_to_its_status_and_its_piece_of_the_reason_on_either_backend(tmp_path):
    path = tmp_path / "planted.cu"
    path.write_text("// expect: INCORRECT: o: mean\n// on a GPU: any: lse\n/*evo\n")
    host, gpu = expected_on_host(path), expected_on_gpu(path)
    assert host.complaint(Status.INCORRECT, "wrong: o: mean error 1") == ""
    assert host.complaint(Status.INCORRECT, "lse") == "expected INCORRECT: o: mean; found INCORRECT: lse"
    assert host.complaint(Status.TIMEOUT, "o: mean") == "expected INCORRECT: o: mean; found TIMEOUT: o: mean"
    assert gpu.complaint(Status.TIMEOUT, "an lse") == ""
    assert gpu.complaint(Status.TIMEOUT, "o") == "expected any status: lse; found TIMEOUT: o"
    path.write_text("// expect: PASSED\n// The same on a GPU.\n")
    assert expected_on_gpu(path) == expected_on_host(path)


def test_a_planted_kernel_that_must_not_pass_says_why():
    """No reason depends on luck here: the host's order of blocks and threads is given."""
    silent = [path.name for path in PLANTED if not expected_on_host(path).piece]
    assert silent == [path.name for path in PLANTED if expected_on_host(path).status is Status.PASSED]


def test_every_planted_kernel_is_refused_for_its_own_reason_and_a_good_one_passes_at_the_end(evaluator):
    assert len(PLANTED) >= 8
    sources = [path.read_text() for path in PLANTED] + [seed("naive")]
    found = evaluator.evaluate_all(sources)
    complaints = {
        path.name: expected_on_host(path).complaint(evaluation.status, evaluation.reason)
        for path, evaluation in zip(PLANTED, found, strict=False)
    }
    assert {name: complaint for name, complaint in complaints.items() if complaint} == {}
    assert (found[-1].status, found[-1].reason) == (Status.PASSED, "")


def test_the_same_kernel_first_and_last_is_right_both_times_and_its_scenarios_are_all_timed(evaluator):
    first, other, last = evaluator.evaluate_all([seed("naive"), seed("tiled"), seed("naive")])
    assert [each.status for each in (first, other, last)] == [Status.PASSED] * 3
    assert set(first.speedups) == set(last.speedups) == {each.name for each in SUITE.scenarios}
    assert first.key == last.key != other.key
    assert {check.input_seed for check in first.checks}.isdisjoint(check.input_seed for check in last.checks)
