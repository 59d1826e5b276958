"""The fastest of several baselines, scenario by scenario, under the name of the one that it was."""

import pytest
import torch

from fitness.baselines.best import BestBaseline
from fitness.baselines.sdpa import SdpaBaseline
from fitness.baselines.selection import build_baseline, check_baseline
from fitness.faults import BaselineUnavailableError
from fitness.scenario import Suite
from tests.fitness.fake_device import FakeBaseline, empty_tensors, scenario
from tests.fitness.test_timing import timed

SHAPE = scenario()


class Member(FakeBaseline):
    def __init__(self, name, settings=("default",), **rest):
        super().__init__(**rest)
        self.name, self.version, self.settings = name, f"{name} 1", settings

    def calls(self, tensors, shape):
        return dict.fromkeys(self.settings, lambda: self.attend(tensors, shape))


def test_every_way_of_every_member_is_offered_under_its_name():
    best = BestBaseline([Member("fa3", ("num_splits=1", "num_splits=0")), Member("cudnn")])
    calls = best.calls(empty_tensors(SHAPE), SHAPE)
    assert list(calls) == ["fa3 num_splits=1", "fa3 num_splits=0", "cudnn"]
    assert (best.name, best.version) == ("best", "fa3: fa3 1; cudnn: cudnn 1")


def test_a_member_that_cannot_do_a_scenario_is_left_out_there_only():
    best = BestBaseline([Member("fa3"), Member("cudnn", refuses="no causal mask")])
    assert best.cannot(SHAPE) == ""
    assert list(best.calls(empty_tensors(SHAPE), SHAPE)) == ["fa3"]
    full = scenario(causal=False)
    assert list(best.calls(empty_tensors(full), full)) == ["fa3", "cudnn"]


def test_a_scenario_that_none_can_do_is_refused_with_each_ones_reason():
    best = BestBaseline([Member("fa3", refuses="too long"), Member("cudnn", refuses="top-left")])
    assert best.cannot(SHAPE) == "fa3: too long; cudnn: top-left"
    with pytest.raises(BaselineUnavailableError, match="the baseline best cannot compute 1 of the 1 scenarios"):
        check_baseline(best, Suite(name="one", scenarios=(SHAPE,)))


def test_the_fastest_is_compared_with_and_recorded():
    """Five trials each: fa3 takes 4 ms, cudnn 3 ms."""
    found, _ = timed(times_ms=[4.0] * 5 + [3.0] * 1000, baseline=BestBaseline([Member("fa3"), Member("cudnn")]))
    assert found.timing.baseline_setting == "cudnn"


def test_a_broken_member_is_left_out_though_it_is_the_fastest():
    broken = Member("cudnn", attend=lambda tensors, shape: torch.zeros_like(tensors.q))
    found, _ = timed(times_ms=[4.0] * 5 + [3.0] * 1000, baseline=BestBaseline([Member("fa3"), broken]))
    assert found.timing.baseline_setting == "fa3"


def test_on_a_processor_it_is_torchs_own_alone():
    best = build_baseline("best")
    if torch.cuda.is_available():
        pytest.skip("for a machine without a GPU")
    assert best.version == f"sdpa: {SdpaBaseline().version}"


def test_without_members_there_is_no_best():
    with pytest.raises(ValueError, match="no members"):
        BestBaseline([])
