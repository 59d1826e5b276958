"""What a model is told of a draft that was measured."""

from dataclasses import replace

from drafts import FakeEvaluator
from small_records import build, failed, passed

from evo.tools.draft_judge import DraftJudge
from evo.tools.measure import Measure
from fitness.evaluation import Status


def test_a_draft_that_passes_has_its_figures():
    verdict = replace(
        passed("draft", {"long": 0.5, "short": 2.0}), builds=(build("wgmma … serialized", stores=8, loads=4),)
    )
    evaluator = FakeEvaluator(verdict)
    tool = Measure(DraftJudge(evaluator=evaluator, compiler=None))
    assert tool.call("draft", {}).splitlines() == [
        "PASSED: the geometric mean of 2 speedups is 1.0000",
        "worst: long, 0.500",
        "long: 2.0000 ms, baseline 1.0000 ms, speedup 0.500 (0.500 to 0.500)",
        "short: 0.5000 ms, baseline 1.0000 ms, speedup 2.000 (2.000 to 2.000)",
        "attention_forward, HEAD_DIM=64: 40 registers, 12 bytes spilled",
        "the compiler on HEAD_DIM=64: wgmma … serialized",
    ]
    tool.call("draft", {})
    assert evaluator.judged == ["draft"]  # the same text is measured once
    tool.call("another", {})
    assert evaluator.judged == ["draft", "another"]


def test_a_draft_that_fails_has_its_reason():
    verdict = failed("draft", Status.INCORRECT, "o differs from the reference by 0.5")
    tool = Measure(DraftJudge(evaluator=FakeEvaluator(verdict), compiler=None))
    assert tool.call("draft", {}) == "INCORRECT: o differs from the reference by 0.5"
