"""No fault that more than doubles the honest error passes the gate, at two lengths on a processor."""

from dataclasses import replace

import pytest

from benchmarks.faulty_attention import Fault
from benchmarks.gate_tightness import MUST_CATCH, Finding, missed_faults, scenarios, sweep
from fitness.inputs import Distribution

LONGEST, HEAD_DIM = 256, 64
[SHAPE, *_] = scenarios(LONGEST, HEAD_DIM)
DOUBLED = Finding(
    fault=Fault(family="V rounded", strength="6 bits"),
    scenario=SHAPE,
    distribution=Distribution.NORMAL,
    times_honest=2.1,
    caught_by=(),
)


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return [finding for scenario in scenarios(LONGEST, HEAD_DIM) for finding in sweep(scenario, "cpu")]


def test_every_fault_that_more_than_doubles_the_honest_error_is_refused(findings: list[Finding]) -> None:
    assert {each.scenario.seqlen_k for each in findings} == {128, LONGEST}
    assert missed_faults(findings) == []


def test_faults_of_every_family_are_so_large_and_the_honest_computation_passes(findings: list[Finding]) -> None:
    honest = [each for each in findings if each.fault.family == "none"]
    assert [each.caught_by for each in honest] == [()] * len(honest)
    large = {each.fault.family for each in findings if (each.times_honest or 0) > MUST_CATCH}
    rounded = {f"{part} rounded" for part in "PQKV"}
    assert large == rounded | {"keys dropped", "mask shifted by +1", "mask shifted by -1", "scale too large"}


def test_a_fault_is_missed_where_no_distribution_shows_it_and_it_more_than_doubles_the_error() -> None:
    seen = replace(DOUBLED, distribution=Distribution.PEAKED, times_honest=1.1, caught_by=("row_error",))
    worse = replace(DOUBLED, distribution=Distribution.LARGE, times_honest=3.0)
    assert missed_faults([DOUBLED]) == [f"V rounded 6 bits, {SHAPE.name}, normal: 2.10"]
    assert missed_faults([DOUBLED, worse]) == [f"V rounded 6 bits, {SHAPE.name}, large: 3.00"]
    assert missed_faults([DOUBLED, seen]) == []
    assert missed_faults([replace(DOUBLED, times_honest=1.9)]) == []
    [endless] = missed_faults([replace(DOUBLED, times_honest=None)])
    assert endless.endswith("normal: not finite")
