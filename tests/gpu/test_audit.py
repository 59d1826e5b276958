"""An honest kernel passes the audit; kernels that are right only as long as they are looked at singly fail it."""

import pytest

from fitness.audit import Auditor
from fitness.audit_record import Audit, Finding
from fitness.evaluation import Environment, Status
from fitness.evaluator import Evaluator, Target
from fitness.judge_settings import JudgeSettings
from fitness.sanitizer import TOOLS, find_sanitizer
from fitness.scenario import Suite, edge_scenarios
from tests.gpu.sources import rows, seed, shape

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


def test_an_honest_kernel_passes_every_check_that_can_be_made_here(audited):
    _, audit = audited(seed("mma"), SHAPES)
    assert not audit.failed, audit.reason
    findings = {check.name: check.finding for check in audit.checks}
    assert findings["new inputs"] is Finding.PASSED
    assert findings["bulk against single calls"] is Finding.PASSED
    assert findings["time against work"] is Finding.PASSED
    assert findings["cycles inside against time outside"] is Finding.SKIPPED


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
