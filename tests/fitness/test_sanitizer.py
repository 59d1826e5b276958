"""What the output of compute-sanitizer's tools says of a candidate, and what becomes of tools that cannot say."""

import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fitness.audit_record import Finding
from fitness.sanitized import Sanitized
from fitness.sanitizer import Sanitizer, ToolRun, read_report
from tests.fitness.fake_device import plan, scenario
from tests.fitness.test_process import wait_for_end

ROOT = Path(__file__).parents[2]
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at attention+0x170
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f00 is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at attention+0x170
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= {}: Race reported between Write access at attention+0xd0
=========     and Read access at attention+0x100 [1984 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OTHERS = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4>+0x50
=========
========= Program hit invalid device ordinal (error 101) on CUDA API call to cudaSetDevice.
========= ERROR SUMMARY: 2 errors
"""
HEAD, SUMMARY = "========= COMPUTE-SANITIZER\n", "========= ERROR SUMMARY: 0 errors\n"
STEPS = "evo: ready\n" + "".join(f"evo: calling b{n} s64\nevo: called b{n} s64\n" for n in (1, 2, 3))
CLEAN = HEAD + STEPS + SUMMARY
BROKEN = HEAD + "evo: ready\nevo: calling b1 s64\nevo: broke on b1 s64: running it failed: unspecified launch failure\n"


class InterruptedSearch(Exception):
    """What a handler may raise besides."""


def said(output, *, exit_code=0, timed_out=False, plain=None):
    ended = ToolRun(exit_code=exit_code, output=output, timed_out=timed_out)
    return read_report("tool", ended, {"attention"}, 3, plain)


def test_an_error_in_a_kernel_of_the_candidate_fails():
    found = said(MEMCHECK)
    assert found.finding is Finding.FAILED
    assert found.detail == (
        "2 errors: Invalid __global__ read of size 4 bytes | at attention+0x170 | "
        "by thread (0,0,0) in block (0,0,0) | Address 0x7f00 is out of bounds; "
        "Invalid __global__ read of size 4 bytes | at attention+0x170"
    )


def test_of_many_errors_four_that_differ_are_told():
    races = "".join(
        f"========= Error: Race reported between Write access at attention+{place:#x}\n=========\n"
        for place in (1, 1, 2, 3, 4, 5)
    )
    places = [f"Error: Race reported between Write access at attention+{place:#x}" for place in (1, 2, 3, 4)]
    assert said(races).detail == f"6 errors: {'; '.join(places)}"


def test_of_races_only_errors_count():
    assert said(RACECHECK.format("Error")).finding is Finding.FAILED
    assert said(STEPS + RACECHECK.format("Warning")).finding is Finding.PASSED


def test_what_is_found_in_other_kernels_is_no_verdict_on_the_candidate():
    assert said(STEPS + OTHERS).finding is Finding.PASSED


def test_a_kernel_of_a_longer_name_is_another_one():
    assert said(STEPS + MEMCHECK.replace("attention", "attention_of_torch")).finding is Finding.PASSED


def test_a_clean_run_says_what_was_run():
    found = said(CLEAN)
    assert (found.finding, found.detail) == (Finding.PASSED, "3 builds, one call each, without an error")


def test_a_tool_that_breaks_or_runs_on_is_skipped_with_the_reason():
    broken = said("something\nno space left on device\n", exit_code=1)
    assert broken.finding is Finding.SKIPPED
    assert broken.detail == "it ended with exit code 1 and no report on the kernels: no space left on device"
    assert said("", exit_code=2).detail.endswith("it wrote nothing")


@pytest.mark.parametrize(
    ("output", "detail"),
    [
        ("", "it took longer than 300 s, and had not come to the first call"),
        (HEAD + "evo: ready\n", "it took longer than 300 s"),
        (HEAD + "evo: ready\nevo: calling b1 s64\n",
         "it ran, and under it the call on b1 s64 had not ended after 300 s"),
        (HEAD + STEPS, "it took longer than 300 s"),
    ],
)  # fmt: skip
def test_a_tool_that_runs_on_is_skipped_and_says_how_far_it_came(output, detail):
    found = said(output, exit_code=-9, timed_out=True)
    assert (found.finding, found.detail) == (Finding.SKIPPED, detail)


@pytest.mark.parametrize(
    ("output", "detail"),
    [
        ("", "it ended after 0 of 3 calls"),
        (HEAD + SUMMARY, "it ended after 0 of 3 calls"),
        (CLEAN.replace("evo: called b3 s64\n", ""), "it ended after 2 of 3 calls"),
        (STEPS, "it ended without a summary of its own"),
    ],
)
def test_only_a_tool_that_saw_every_call_and_came_to_its_end_vouches_for_the_kernel(output, detail):
    found = said(output)
    assert (found.finding, found.detail) == (Finding.SKIPPED, detail)


def test_a_kernel_that_breaks_under_the_tool_alone_fails():
    found = said(BROKEN, exit_code=1, plain=ToolRun(exit_code=0, output=STEPS))
    assert found.finding is Finding.FAILED
    assert found.detail == (
        "under it the candidate broke on b1 s64: running it failed: unspecified launch failure; without it the same "
        "calls come to their end"
    )


def test_a_kernel_that_breaks_without_the_tool_too_fails():
    found = said(BROKEN, exit_code=1, plain=ToolRun(exit_code=1, output=BROKEN))
    assert found.finding is Finding.FAILED
    assert found.detail.endswith("without it on b1 s64: running it failed: unspecified launch failure")


@pytest.mark.parametrize(
    "plain",
    [
        ToolRun(exit_code=1, output="no GPU"),
        ToolRun(exit_code=-9, output=STEPS[:20], timed_out=True),
        ToolRun(exit_code=0, output=""),
    ],
)
def test_where_the_calls_cannot_be_made_without_the_tool_the_kernel_is_not_blamed(plain):
    found = said(BROKEN, exit_code=1, plain=plain)
    assert found.finding is Finding.SKIPPED
    assert found.detail.endswith("without it the calls could not be made")


def test_a_break_is_looked_at_without_the_tool_and_a_clean_run_is_not(tmp_path):
    """The tool here runs no kernel: without it our own runner says that there is no job to be read."""
    broken = written(tmp_path / "broken", "print('evo: broke on b1: a trap')\nsys.exit(1)\n")
    found = Sanitizer(broken, {"PYTHONPATH": str(ROOT)}).check("memcheck", job())
    assert found.finding is Finding.SKIPPED
    assert found.detail == "under it the candidate broke on b1: a trap; without it the calls could not be made"
    clean = written(tmp_path / "clean", "print('evo: called b1')\nprint('========= ERROR SUMMARY: 0 errors')\n")
    assert Sanitizer(clean, {}).check("memcheck", job()).finding is Finding.PASSED


def test_an_error_that_was_reported_counts_however_the_tool_ended():
    assert said(MEMCHECK, exit_code=1, timed_out=True).finding is Finding.FAILED


def test_without_the_tool_the_check_is_skipped_and_says_where_it_comes_from():
    found = Sanitizer(None, {}).check("memcheck", job())
    assert found.finding is Finding.SKIPPED
    assert "comes with the CUDA toolkit" in found.detail


def test_a_program_that_does_not_start_is_skipped(tmp_path):
    found = Sanitizer(tmp_path / "nothing", {}).check("racecheck", job())
    assert found.finding is Finding.SKIPPED
    assert found.detail.startswith("it does not start")


def test_the_tool_gets_its_name_our_runner_and_no_key(tmp_path):
    program = written(
        tmp_path / "compute-sanitizer",
        "found = os.path.isfile(sys.argv[6]), 'OPENAI_API_KEY' in os.environ\n"
        "print('=========', *sys.argv[1:3], sys.argv[4:6], *found)\n"
        "print('=========     at attention')\n",
    )
    found = Sanitizer(program, {"OPENAI_API_KEY": "secret", "PYTHONPATH": ""}).check("racecheck", job())
    assert found.finding is Finding.FAILED
    assert "--tool racecheck ['-m', 'fitness.sanitized'] True False" in found.detail


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, InterruptedSearch])
def test_an_interruption_ends_the_tool_at_once(tmp_path, interruption):
    """The tool never ends by itself, so that whoever waits for it does not return."""
    program, ready = endless(tmp_path)

    def interrupt(*_):
        if select.select([ready], [], [], 0)[0]:  # the tool is at work
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(interruption):
            Sanitizer(program, {}).check("memcheck", job())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [wait_for_end(pid) for pid in at_work(ready)] == [True, True]


def test_the_tool_goes_with_a_parent_that_is_killed(tmp_path):
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.fitness.test_sanitizer import Sanitizer, job\n"
        "Sanitizer(Path(sys.argv[1]), {}).check('memcheck', job())\n"
    )
    program, ready = endless(tmp_path)
    with subprocess.Popen([sys.executable, "-c", script, program], cwd=ROOT) as parent:
        pids = at_work(ready)
        parent.kill()
    assert [wait_for_end(pid) for pid in pids] == [True, True]


def written(path, body):
    """A tool that does as the body says."""
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def endless(folder):
    """A tool that never ends, and the pipe into which it writes its process id and that of a child."""
    program = folder / "compute-sanitizer"
    os.mkfifo(folder / "ready")
    program.write_text(
        f"#!{sys.executable}\nimport os, signal\n"
        "child = os.fork()\n"
        "if child:\n"
        f"    with open({str(folder / 'ready')!r}, 'w') as ready:\n"
        "        print(os.getpid(), child, file=ready)\n"
        "while True:\n    signal.pause()\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program, os.open(folder / "ready", os.O_RDONLY | os.O_NONBLOCK)


def at_work(ready):
    """The process ids of a tool that has started, and of its child."""
    assert select.select([ready], [], [], 60)[0], "the tool does not start"
    with os.fdopen(ready) as pipe:
        return tuple(map(int, pipe.read().split()))


def job():
    return Sanitized(plans=((plan(scenario()), Path("kernel")),), device_index=0, rng_seed=1)
