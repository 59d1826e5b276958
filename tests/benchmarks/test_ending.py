"""What a benchmark keeps and says where it ends early."""

import io

import pytest
from rich.console import Console

from benchmarks.ending import ended, keeping
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault


def said_of(fault):
    said = io.StringIO()

    def main():
        if fault is not None:
            raise fault
        return 0

    return ended(main, Console(file=said, width=200)), said.getvalue()


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (None, 0, ""),
        (EnvironmentFault("the device is lost"), 2, "evo: the device is lost\n"),
        (
            CandidateFault(Status.RUNTIME_ERROR, "an illegal address\nat 0"), 2,
            "evo: a kernel of this benchmark fails: RUNTIME_ERROR: an illegal address at 0\n",
        ),
    ],
)  # fmt: skip
def test_what_ends_it_is_one_line(fault, code, line):
    assert said_of(fault) == (code, line)


@pytest.mark.parametrize(
    ("fault", "told"),
    [(EnvironmentFault("the device is lost"), "the device is lost"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
def test_what_was_measured_is_told_before_the_fault_goes_on(fault, told):
    seen = []
    with pytest.raises(type(fault)), keeping(seen.append):
        raise fault
    assert seen == [told]


def test_at_its_end_nothing_ended_it():
    seen = []
    with keeping(seen.append):
        assert seen == []
    assert seen == [""]
