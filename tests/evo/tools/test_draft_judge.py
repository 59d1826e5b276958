"""Drafts go through the search's own evaluator: what it refuses natively, the model is told."""

import json
import random
from pathlib import Path

import pytest
from small_records import ENVIRONMENT
from small_search import SOURCE, judge_knobs, small_config, small_settled

from evo.tools.bench import Bench
from evo.tools.disassemble import Disassemble
from evo.tools.draft_judge import DraftJudge
from evo.tools.measure import Measure
from evo.workbench import build_bench
from fitness.backends.recorded import RecordedEvaluator
from fitness.compiler import CompiledBuild
from fitness.evaluation import BuildReport
from fitness.evaluator import Compiled, Evaluator, Target
from fitness.faults import EnvironmentFault
from fitness.judge_settings import JudgeSettings
from fitness.manifest import with_knobs

NATIVE = (
    "INVALID: not a shipped seed with other knob values, and this backend would run it natively, with your rights; "
)


class Compiler:
    version = "fake 1"
    flags = ()

    def __init__(self, fault=None):
        self.fault = fault

    def compile(self, source, builds):
        if self.fault:
            raise self.fault
        report = BuildReport(name="element=bf16", kernels=(), advisories=())
        return tuple(CompiledBuild(build=build, binary=Path("draft.so"), report=report) for build in builds)


class Worker:
    def measure(self, job):
        raise AssertionError("nothing was to run")


def evaluator(*, may_run=lambda _: True, compiler=None):
    target = Target(names=frozenset({"portable"}), sm_count=1, environment=ENVIRONMENT, compiling_disturbs=True)
    return Evaluator(
        suite=small_settled(small_config()).suite, target=target, compiler=compiler or Compiler(), worker=Worker(),
        settings=JudgeSettings(), may_run=may_run, rng=random.Random(0),
    )  # fmt: skip


def bench_of(judged_by):
    judge = DraftJudge(evaluator=judged_by, compiler=judged_by)
    return Bench((Measure(judge), Disassemble(judge, program="objdump", on_gpu=False)), limit=9)


@pytest.mark.parametrize("tool", ["measure", "disassemble"])
def test_what_may_not_run_natively_is_refused_by_every_tool(tool):
    bench = bench_of(evaluator(may_run=lambda source: source == SOURCE))
    draft = json.dumps({"draft": with_knobs(SOURCE, {"STAGES": 2})})
    call = bench.call(tool, draft, parent_source=SOURCE, order=0)
    assert call.result == f"{NATIVE}set backend.run_model_code=true to allow that"


def test_builds_are_those_of_the_evaluator():
    judge = DraftJudge(evaluator=evaluator(), compiler=evaluator())
    compiled = judge.compiled(SOURCE)
    assert isinstance(compiled, Compiled)
    assert [plan.scenario.seqlen_q for plan in compiled.plan.scenarios] == [64, 128]
    assert judge.compiled(SOURCE.replace("contract = 1", "contract = 9")).startswith("INVALID: ")


@pytest.mark.parametrize("tool", ["measure", "disassemble"])
def test_a_fault_of_the_environment_is_an_exception(tool):
    bench = bench_of(evaluator(compiler=Compiler(EnvironmentFault("no space left on device"))))
    with pytest.raises(EnvironmentFault, match="no space left"):
        bench.call(tool, '{"draft": "parent"}', parent_source=SOURCE, order=0)


def test_on_a_table_of_measurements_a_draft_has_its_verdict_and_no_code():
    config = small_config()
    recorded = RecordedEvaluator([judge_knobs(SOURCE)])
    bench = build_bench(config, small_settled(config), recorded)
    assert [tool.name for tool in bench.tools] == ["measure", "profile", "disassemble", "occupancy"]
    assert bench.limit == config.answerer.tool_calls == 8
    results = [
        bench.call(tool.name, '{"draft": "parent"}', parent_source=SOURCE, order=0).result for tool in bench.tools
    ]
    assert results[0].startswith("PASSED: the geometric mean of 2 speedups is ")
    assert all(result.startswith("not available: ") for result in results[1:])
