"""Nsight Compute's output, from a stand-in that writes it: what it is asked, and what a model is told."""

import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from drafts import LONG, SHORT, compiled, judge_of, resources
from small_records import failed, passed

from evo.tools.nsight import COUNTERS, KernelCounters, NoCounters, NsightCompute, read_counters
from evo.tools.profile import Profile
from evo.tools.profiled_run import Launched
from fitness.evaluation import Status

HEAD = '"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit","Metric Value"'
ROW = '"{id}","7","{kernel}","(128, 1, 1)","Command line profiler metrics","{name}","%","{value}"'
PASSED = passed("draft", {SHORT.name: 2.0, LONG.name: 0.5})
DRAFT = compiled(resources(), resources("join"))
DURATION, HITS = "gpu__time_duration.sum", "lts__t_sector_hit_rate.pct"


def row(kernel: str, name: str, value: str, number: int = 0) -> str:
    return ROW.format(id=number, kernel=kernel, name=name, value=value)


def output(*rows: str) -> str:
    said = ("==PROF== Connected to process 7", '==PROF== Profiling "attention_forward": 0%....100% - 5 passes', HEAD)
    return "\n".join((*said, *rows, "==PROF== Disconnected"))


@pytest.fixture
def ncu(tmp_path: Path):
    """A function that makes a stand-in for ncu, which notes what it is asked and runs a line of shell."""

    def make(*lines: str, **environment: str) -> NsightCompute:
        script = tmp_path / "ncu"
        script.write_text("\n".join(("#!/bin/sh", f'echo "$@" >> {tmp_path}/asked', *lines, "")), encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return NsightCompute(script, {"PATH": os.environ["PATH"], **environment})

    return make


def asked(tmp_path: Path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()]


def saying(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def launched() -> Launched:
    return Launched(plan=DRAFT.plan.scenarios[0], binary=Path("draft.cubin"), device_index=0)


def test_rows_are_gathered_by_launch():
    text = output(
        row("attention_forward", DURATION, "12,345"),
        row("attention_forward", HITS, "98.7"),
        row("attention_forward", "sm__no_such.sum", "n/a"),
        row("join", DURATION, "67", number=1),
    )
    assert read_counters(text) == (
        KernelCounters(kernel="attention_forward", values={DURATION: "12345", HITS: "98.7"}),
        KernelCounters(kernel="join", values={DURATION: "67"}),
    )


@pytest.mark.parametrize("text", ["", "==PROF== Disconnected", HEAD, '"a stray line"'])
def test_output_without_rows_has_no_counters(text):
    assert read_counters(text) == ()


def test_ncu_is_asked_for_the_kernels_of_the_scenario_and_leaves_the_clocks_alone(ncu, tmp_path):
    found = ncu(saying(output(row("join", DURATION, "5")))).counters(launched())
    assert found == (KernelCounters(kernel="join", values={DURATION: "5"}),)
    [words] = asked(tmp_path)
    options = dict(pairwise(words))
    assert options["--clock-control"] == "none"
    assert options["--metrics"].split(",") == list(COUNTERS)
    assert options["--kernel-name"] == "regex:^(attention_forward|join)$"
    assert options["--print-units"] == "base"
    assert "--csv" in words
    assert words[-3:-1] == ["-m", "evo.tools.profiled_run"]


def test_the_profiled_process_gets_no_keys(ncu, tmp_path):
    answer = saying(output(row("join", DURATION, "5")))
    ncu(f"env > {tmp_path}/environment", answer, OPENAI_API_KEY="sk-secret", CUDA_HOME="/cuda").counters(launched())
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text(encoding="utf-8").splitlines()}
    assert {"PATH", "CUDA_HOME", "TMPDIR"} <= names
    assert "OPENAI_API_KEY" not in names


def test_counters_that_this_ncu_lacks_are_left_out(ncu, tmp_path):
    complaint = f"==ERROR== Failed to find metric {HITS}"
    answer = output(row("join", DURATION, "5"))
    found = ncu(f"case $* in *{HITS}*) {saying(complaint)}\n;; *) {saying(answer)}\n;; esac").counters(launched())
    assert [each.values for each in found] == [{DURATION: "5"}]
    first, second = ("".join(words) for words in asked(tmp_path))
    assert HITS in first
    assert HITS not in second
    assert DURATION in second


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user may not read counters",
            "ERR_NVGPUCTRPERM - The user may not read counters",
        ),
        ("Traceback:\nEnvironmentFault: no GPU", "EnvironmentFault: no GPU"),
        ("", "it wrote nothing"),
    ],
)
def test_no_counters_have_a_reason_in_one_line(ncu, said, why):
    with pytest.raises(NoCounters) as caught:
        ncu(saying(said)).counters(launched())
    assert str(caught.value) == why


def test_an_ncu_that_does_not_start_is_a_reason_too(tmp_path):
    with pytest.raises(NoCounters, match="No such file"):
        NsightCompute(tmp_path / "ncu", {}).counters(launched())


def test_the_scenario_with_the_least_speedup_is_profiled(ncu):
    tool = Profile(judge_of(PASSED, DRAFT), ncu=ncu(saying(output(row("join", HITS, "9.5")))), device_index=0)
    assert tool.call("draft", {}).splitlines() == [f"on {LONG.name}, cold caches", "join:", "- L2 hit rate, %: 9.5"]


def test_where_it_cannot_be_profiled_one_line_says_so(ncu):
    broken = ncu(saying("==ERROR== no driver"))
    wrong = failed("draft", Status.INCORRECT, "o is zero")
    cases = [
        (
            Profile(judge_of(PASSED, DRAFT), ncu=broken, device_index=None),
            "not available: there is no GPU to profile on",
        ),
        (
            Profile(judge_of(PASSED, DRAFT), ncu=None, device_index=0),
            "not available: ncu, Nsight Compute's command, is not",
        ),
        (
            Profile(judge_of(PASSED, DRAFT), ncu=broken, device_index=0),
            "not available: Nsight Compute gave no counters: no",
        ),
        (
            Profile(judge_of(wrong, DRAFT), ncu=broken, device_index=0),
            "not profiled, as it does not pass: INCORRECT: o is",
        ),
    ]
    for tool, said in cases:
        result = tool.call("draft", {})
        assert result.startswith(said)
        assert "\n" not in result
