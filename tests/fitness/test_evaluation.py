"""The record of a candidate: what a status allows, and JSON that gives the equal record back."""

import json
import math
from dataclasses import replace

import pytest

from fitness.evaluation import (
    BuildReport,
    Environment,
    Evaluation,
    KernelResources,
    ScenarioCheck,
    ScenarioTiming,
    Status,
)

TIMING = ScenarioTiming(
    scenario="b1", candidate_ms=(1.0, 1.5), baseline_ms=(2.0, 2.5), candidate_median_ms=1.25, baseline_median_ms=2.25,
    speedup=1.8, speedup_low=1.7, speedup_high=1.9, tflops=3.0, baseline_difference_max=0.01,
    baseline_difference_rms=0.001, baseline_setting="num_splits=0",
)  # fmt: skip
CHECK = ScenarioCheck(
    scenario="b1", distribution="normal", stage="correctness", input_seed=2**48 - 1, passed=False, reason="o: NaN",
    max_error=None, max_error_bound=0.1, relative_rms_error=None, relative_rms_bound=0.01, mean_error=None,
    mean_error_bound=0.01, lse_max_error=1e-6, lse_max_bound=0.004, row_error=None, row_error_bound=0.02,
)  # fmt: skip
KERNEL = KernelResources(
    kernel="attention", registers=168, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, shared_bytes=1024
)
PASSED = Evaluation(
    key="k", source_sha256="s", suite="smoke", status=Status.PASSED, reason="",
    environment=Environment(
        backend="host", device="a processor", driver="", compiler="g++ 12", baseline="sdpa", baseline_version="torch 2"
    ),
    builds=(BuildReport(name="HEAD_DIM=64", kernels=(KERNEL,), advisories=("spilled",)),), checks=(CHECK,),
    timings=(TIMING, replace(TIMING, scenario="b2", speedup=0.5)), geomean=0.95, geomean_low=0.9, geomean_high=1.0,
    compile_s=0.5, check_s=1.0, time_s=2.0,
)  # fmt: skip
FAILED = replace(
    PASSED, status=Status.INCORRECT, reason="wrong", timings=(), geomean=None, geomean_low=None, geomean_high=None
)


@pytest.mark.parametrize("evaluation", [PASSED, FAILED], ids=["passed", "failed"])
def test_json_gives_the_equal_record_back(evaluation):
    text = json.dumps(evaluation.to_json(), allow_nan=False)
    assert Evaluation.from_json(json.loads(text)) == evaluation


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_not_finite_never_reaches_json(value):
    spoilt = replace(PASSED, timings=(TIMING, replace(TIMING, candidate_ms=(1.0, value))))
    with pytest.raises(ValueError, match=r"evaluation\.timings\[1\]\.candidate_ms\[1\] is"):
        spoilt.to_json()


@pytest.mark.parametrize("geomean", [math.nan, math.inf, 0.0, -1.0, True, "1.2"])
def test_a_score_is_a_positive_finite_number(geomean):
    with pytest.raises(ValueError, match="geomean is"):
        replace(PASSED, geomean=geomean)


@pytest.mark.parametrize(
    "change",
    [
        {"geomean": None},
        {"reason": "but"},
        {"status": Status.INCORRECT, "reason": "wrong"},
        {"status": Status.INCORRECT, "reason": "wrong", "geomean": None},  # timings left
        {"status": Status.INCORRECT, "geomean": None, "timings": ()},  # no reason
    ],
)
def test_fields_that_contradict_the_status_are_refused(change):
    with pytest.raises(ValueError, match="evaluation:"):
        replace(PASSED, **change)


def test_partial_timings_stand_under_stopped_early_alone_and_give_no_speedups():
    stopped = replace(PASSED, status=Status.STOPPED_EARLY, reason="slow", geomean=None)
    assert len(stopped.timings) == 2
    assert stopped.speedups == {}
    assert stopped.worst is None


def test_the_worst_scenario_is_the_one_of_the_least_speedup():
    assert PASSED.worst.scenario == "b2"
    assert PASSED.speedups == {"b1": 1.8, "b2": 0.5}


@pytest.mark.parametrize(
    "change", [{"status": "GOOD"}, {"surprise": 1}, {"environment": {}}, {"checks": [{}]}, {"builds": 3}]
)
def test_other_records_are_refused(change):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Evaluation.from_json({**PASSED.to_json(), **change})


def test_a_record_from_before_a_field_had_its_name_can_be_read():
    record = PASSED.to_json()
    del record["geomean_low"], record["geomean_high"]
    assert Evaluation.from_json(record) == replace(PASSED, geomean_low=None, geomean_high=None)
