"""What the share of busy workers is, from their intervals."""

from dataclasses import replace

import pytest

from benchmarks.gpu_share import Interval, Log, cases, shares
from evo.config import BackendKind
from fitness.probe import Gpu, Machine

GPU = Gpu(index=0, name="a GPU", capability=(9, 0), sm_count=132, memory_gib=80.0)
HOST = Machine(processor="a processor", gpus=(), driver="", gxx="", nvrtc="", packages={})
TWO = replace(HOST, gpus=(GPU, replace(GPU, index=1)))


def interval(worker, start_s, end_s):
    return Interval(worker=worker, start_s=start_s, end_s=end_s)


def test_the_share_is_of_all_workers_and_begins_after_the_seed():
    seed = interval(0, 0.0, 50.0)
    log = Log(intervals=[interval(1, 100.0, 108.0), seed, interval(0, 100.0, 104.0), interval(0, 106.0, 110.0)])
    log.workers = 2
    found = shares(log)
    assert found["busy_s"] == [8.0, 8.0]
    assert (found["wall_s"], found["share"], found["evaluations"]) == (10.0, pytest.approx(0.8), 3)
    assert found["evaluations_an_hour"] == pytest.approx(3 * 360)


def test_one_gpu_is_compared_with_all_of_them():
    assert cases(TWO, BackendKind.auto) == [(0,), (0, 1)]
    assert cases(replace(TWO, gpus=(GPU,)), BackendKind.cuda) == [(0,)]
    assert cases(TWO, BackendKind.host) == cases(HOST, BackendKind.auto) == [()]
