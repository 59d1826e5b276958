"""How far evaluations lie apart, in one worker and between workers."""

import json
import math
from dataclasses import replace

import pytest
from small_records import passed
from small_search import MACHINE

from benchmarks.evaluations_apart import Spread, tell


def evaluated(geomean, half=0.001):
    """An evaluation whose interval reaches so far to either side."""
    found = passed("source", {"a": geomean})
    return replace(found, geomean=geomean, geomean_low=geomean - half, geomean_high=geomean + half)


def workers(*geomeans, half=0.001):
    return [tuple(evaluated(each, half) for each in worker) for worker in geomeans]


def test_the_spread_within_a_worker_is_told_from_that_between_them():
    found = Spread.of(workers((1.0, 1.0), (math.e, math.e)))
    assert (found.within, found.apart) == (0.0, 1.0)
    assert found.between == pytest.approx(1 / math.sqrt(2))  # of the logarithms 0 and 1


def test_workers_alike_differ_by_what_one_worker_differs():
    found = Spread.of(workers((1.0, math.e), (1.0, math.e), (1.0, math.e)))
    assert found.within == pytest.approx(1 / math.sqrt(2))
    assert found.between == 0.0


def test_only_pairs_of_different_workers_are_held_against_each_other():
    """1.0 and 1.1 of the first, 1.0005 twice of the second: two of four pairs have nothing in common."""
    assert Spread.of(workers((1.0, 1.1), (1.0005, 1.0005))).apart == 0.5


@pytest.mark.parametrize("few", [[(1.0, 1.0)], [(1.0,), (1.0,)]])
def test_a_spread_takes_two_of_each(few):
    with pytest.raises(ValueError, match="expected two of each of two or more"):
        Spread.of(workers(*few))


def test_what_was_measured_before_a_fault_is_written(tmp_path):
    out = tmp_path / "record.json"
    tell(workers((1.0, 1.001), (1.002, 1.003)), {"ended_by": "the device is lost"}, out, MACHINE, {})
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["ended_by"] == "the device is lost"
    assert [[each["geomean"] for each in worker] for worker in record["workers"]] == [[1.0, 1.001], [1.002, 1.003]]
    assert record["workers"][0][0]["speedups"] == {"a": 1.0}


def test_one_worker_is_no_spread(tmp_path):
    tell(workers((1.0, 1.0)), {}, tmp_path / "record.json", MACHINE, {})
    assert list(tmp_path.iterdir()) == []
