"""An honest kernel passes the audit; kernels that are right only as long as they are looked at singly fail it."""

import pytest

from fitness.audit import Auditor
from fitness.audit_record import Audit, Finding
from fitness.clock_check import CLOCKS
from fitness.clocking import clock
from fitness.evaluation import Environment, Status
from fitness.evaluator import Evaluator, Target
from fitness.examination import Examination
from fitness.judge_settings import JudgeSettings
from fitness.manifest import read_manifest
from fitness.plan import SuitePlan
from fitness.planner import plan_scenario
from fitness.sanitizer import TOOLS, find_sanitizer
from fitness.scenario import Suite, edge_scenarios
from fitness.stamped_ptx import stamp
from fitness.watch import Watch
from tests.gpu.sources import ROOT, rows, seed, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

SHAPES = (
    shape(batch=8, heads=16, kv_heads=16, seqlen_q=1024, head_dim=64, causal=False),
    shape(batch=8, heads=16, kv_heads=16, seqlen_q=1024, head_dim=64),
    shape(batch=8, heads=16, kv_heads=4, seqlen_q=1024, head_dim=128),
)
SMALL = (shape(batch=4, heads=8, kv_heads=8, seqlen_q=512, head_dim=64, causal=False),)
DECODE = shape(batch=16, heads=32, kv_heads=8, seqlen_q=1, seqlen_k=8192, head_dim=128, causal=False)
RACE = "__shared__ float stage[64]; stage[threadIdx.x] = row; if (stage[63 - threadIdx.x] == 12345.5f) return;"
IDLE = "if (to_float(params.o[query]) == to_float(params.o[query]) && *lse == *lse) return;"
TRAP = "if (params.batch == 1 && params.seqlen_q == 512) __trap();"


@pytest.fixture(scope="module")
def audited(machine, gpu, compiler, worker):
    """A function that gives the evaluation of a source and its audit."""

    def evaluate_and_audit(source, shapes):
        suite = Suite(name="audited", scenarios=shapes, edges=edge_scenarios(shapes))
        baseline = worker.baseline(suite)
        environment = Environment(
            backend="cuda", device=gpu.name, driver=machine.driver, compiler=compiler.version, baseline=baseline.name,
            baseline_version=baseline.version,
        )  # fmt: skip
        target = Target(
            names=frozenset({"portable", "sm_80", gpu.arch}), sm_count=gpu.sm_count, environment=environment,
            compiling_disturbs=False, roof=baseline.roof,
        )  # fmt: skip
        settings = JudgeSettings(warmups=1, repeats=15, least_repeats=7, precision=0.003)
        evaluator = Evaluator(
            suite=suite, target=target, compiler=compiler, worker=worker, settings=settings, may_run=lambda _: True
        )
        evaluation = evaluator.evaluate(source)
        assert (evaluation.status, evaluation.reason) == (Status.PASSED, "")
        auditor = Auditor(evaluator, worker, on_gpu=True, sanitizer=find_sanitizer())
        return evaluation, Audit(why=("a test",), checks=auditor.audit(source, evaluation))

    return evaluate_and_audit


@pytest.fixture(scope="module")
def clocked(gpu, compiler, backend, tmp_path_factory):
    """A function that gives a source's calls on one scenario by both clocks."""

    def clock_source(source, scenario):
        plan = plan_scenario(read_manifest(source), scenario, gpu.sm_count)
        path = tmp_path_factory.mktemp("stamped") / "kernel.ptx"
        path.write_text(stamp(compiler.ptx(source, plan.build)).text)
        job = Examination(
            plan=SuitePlan(scenarios=(plan,), edges=()), binaries={plan.build: path}, settings=JudgeSettings(),
            rng_seed=1, stamped=True,
        )  # fmt: skip
        found = clock(job, backend, Watch(lambda step, deadline_s: None, job.settings))
        assert found.fault == ""
        return found.clocked[0]

    return clock_source


def test_an_honest_kernel_passes_every_check_that_can_be_made_here(audited):
    _, audit = audited(seed("mma"), SHAPES)
    assert not audit.failed, audit.reason
    findings = {check.name: check.finding for check in audit.checks}
    assert findings["new inputs"] is Finding.PASSED
    assert findings["bulk against single calls"] is Finding.PASSED
    assert findings["time against work"] is Finding.PASSED
    clocks = next(check for check in audit.checks if check.name == CLOCKS)
    assert clocks.finding is Finding.PASSED, clocks.detail


def test_the_clocks_inside_a_portable_kernel_agree_with_the_events(clocked):
    honest(clocked(rows(), SMALL[0]), least=0.5)


def test_the_clocks_inside_tensor_core_kernels_agree_with_the_events(clocked):
    for each in SHAPES:
        honest(clocked(seed("mma"), each), least=0.5)


def test_two_kernels_of_one_call_are_clocked_from_the_first_beginning_to_the_last_end(clocked):
    found = clocked(seed("mma"), DECODE)
    assert found.launches == 2
    honest(found, least=0.2)


@pytest.mark.usefixtures("hopper")
def test_the_clocks_inside_warp_specialised_kernels_agree_with_the_events(clocked):
    champion = (ROOT / "kernels" / "champion" / "hopper_attention.cu").read_text()
    for source in (seed("hopper"), champion):
        for each in SHAPES:
            honest(clocked(source, each), least=0.5)


def honest(found, *, least):
    """The span inside is no longer than the time outside, and at least this share of it; both clocks inside agree."""
    assert found.unseen_ms < 0, found.figures()
    assert found.peak_mhz > 0
    for call in found.calls:
        span_ms = call.span.nanoseconds / 1e6
        assert least * call.outside_ms < span_ms <= call.outside_ms + 0.003, found.figures()
        assert 0 < call.span.cycles <= 1.01 * call.span.nanoseconds * found.peak_mhz / 1000 + 2000, found.figures()
    if found.launches == 1:
        assert 0.3 * found.outside_ms < found.calls[0].span.cycles / (1e3 * found.peak_mhz), found.figures()


def test_the_sanitizers_tools_ran_on_the_honest_kernel(audited):
    _, audit = audited(seed("mma"), SHAPES[:1])
    tools = {check.name: check for check in audit.checks if check.name in TOOLS}
    if "neither on the PATH" in tools["memcheck"].detail:
        pytest.skip(tools["memcheck"].detail)
    assert {name: check.finding for name, check in tools.items()} == dict.fromkeys(TOOLS, Finding.PASSED), tools


def test_a_race_that_does_no_harm_here_fails_the_audit(audited):
    _, audit = audited(rows("at first", RACE), SMALL)
    [race] = [check for check in audit.checks if check.name == "racecheck"]
    if race.finding is Finding.SKIPPED:
        pytest.skip(race.detail)
    assert audit.failed
    assert "attention_forward" in race.detail


def test_a_kernel_that_breaks_under_a_tool_without_a_report_fails_the_audit(audited):
    """On the one shape that the tools alone are given; it breaks without them too, which is told."""
    _, audit = audited(rows("at first", TRAP), SMALL)
    tools = [check for check in audit.checks if check.name in TOOLS]
    if tools[0].finding is Finding.SKIPPED and "neither on the PATH" in tools[0].detail:
        pytest.skip(tools[0].detail)
    assert audit.failed, tools
    assert tools[-1].finding is Finding.FAILED
    assert "b1 h1 s512" in tools[-1].detail or "attention_forward" in tools[-1].detail


def test_a_kernel_that_rests_where_its_answer_lies_already_fails_the_audit(audited):
    """Every single call finds poisoned outputs and works; of a bulk of calls only the first does."""
    _, audit = audited(rows("at first", IDLE), SHAPES[:1])
    assert audit.failed
    assert "bulk against single calls" in audit.reason
