"""What is kept of rounds that a fault cut short."""

import json
import math

import pytest
from fake_device import scenario
from small_search import MACHINE

from benchmarks.same_kernel_twice import Round, repeat, tell
from fitness.faults import EnvironmentFault
from fitness.scenario import Suite

SUITE = Suite(name="one", scenarios=(scenario(),))


def rounds(*geomeans):
    """Each call gives the next of them; a fault once there are no more."""
    left = iter(geomeans)

    def one_round(_rng):
        geomean = next(left, None)
        if geomean is None:
            raise EnvironmentFault("the device is lost")
        return Round(geomean=geomean, speedups={"a": geomean, "b": 2.0})

    return one_round


def test_the_first_round_does_not_count():
    found = []
    repeat(rounds(9.0, 1.0, 2.0), 2, math.inf, found)
    assert [each.geomean for each in found] == [1.0, 2.0]


def test_one_round_is_made_where_there_is_no_time():
    found = []
    repeat(rounds(9.0, 1.0, 2.0), 2, 0.0, found)
    assert [each.geomean for each in found] == [1.0]


def test_a_fault_keeps_the_rounds_before_it(tmp_path):
    out, found = tmp_path / "record.json", {"whole": [], "cut": [], "nothing": []}
    repeat(rounds(9.0, 1.0, 1.0), 2, math.inf, found["whole"])
    for what, made in (("cut", rounds(9.0, 1.0, 1.002, 1.25)), ("nothing", rounds(9.0))):
        with pytest.raises(EnvironmentFault):
            repeat(made, 100, math.inf, found[what])
    tell(found, "the device is lost", SUITE, out, MACHINE, {})
    record = json.loads(out.read_text(encoding="utf-8"))
    assert (record["suite"], record["ended_by"], record["whole"]["rounds"]) == ("one", "the device is lost", 2)
    assert "nothing" not in record
    assert record["cut"] == {
        "rounds": 3, "median": 1.002, "within": pytest.approx(2 / 3), "spread": 0.25, "worst_spread": 0.25,
        "geomeans": [1.0, 1.002, 1.25], "speedups": {"a": [1.0, 1.002, 1.25], "b": [2.0, 2.0, 2.0]},
    }  # fmt: skip


def test_without_a_round_nothing_is_written(tmp_path):
    tell({"nothing": []}, "the device is lost", SUITE, tmp_path / "record.json", MACHINE, {})
    assert list(tmp_path.iterdir()) == []
