"""compute-sanitizer: what its tools say of a candidate's kernels, each tool in a small process of its own."""

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fitness.audit_record import AuditCheck, Finding
from fitness.child_environment import listed_environment
from fitness.process_limits import kill_at_hangup
from fitness.sanitized import BROKE, CALLED, CALLING, READY, Sanitized

TOOLS = ("memcheck", "racecheck", "initcheck")
TIMEOUT_S = 300.0  # for one tool: it starts torch, and makes kernels many times slower

_PLACES = (Path("/usr/local/cuda/bin/compute-sanitizer"),)  # where CUDA installs it, which is not always on the PATH
_MARK = "========="
_TOLD = 4  # different errors of a tool, in an audit's record
_MISSING = (
    "compute-sanitizer is neither on the PATH nor below /usr/local/cuda; it comes with the CUDA toolkit"
)


@dataclass(frozen=True, kw_only=True)
class ToolRun:
    """How a tool's process ended; `timed_out` where it was ended by us."""

    exit_code: int
    output: str
    timed_out: bool = False


class Sanitizer:
    """`compute-sanitizer` at a path (None: there is none). Of the `environment` the process gets what is listed."""

    def __init__(self, program: Path | None, environment: Mapping[str, str]) -> None:
        self._program = program
        self._environment = listed_environment(environment)

    def check(self, tool: str, job: Sanitized) -> AuditCheck:
        """What a tool says of the job's kernels: skipped where it cannot say, failed for an error in one of them.

        So too where a kernel breaks under the tool without a report: a kernel can notice that it is slowed. Then the
        calls are made without the tool as well, for the record.
        """
        if self._program is None:
            return AuditCheck(name=tool, finding=Finding.SKIPPED, detail=_MISSING)
        with tempfile.TemporaryDirectory(prefix="evo-sanitizer-") as folder:
            path = Path(folder, "job.pickle")
            path.write_bytes(pickle.dumps(job))
            runner = (sys.executable, "-m", "fitness.sanitized", str(path))
            environment = {**self._environment, "TMPDIR": folder}
            try:
                ended = _run((str(self._program), "--tool", tool, *runner), environment)
                plain = _run(runner, environment) if _last(ended.output, BROKE) else None
            except OSError as error:
                return AuditCheck(name=tool, finding=Finding.SKIPPED, detail=f"it does not start: {error}")
        kernels = {launch.kernel for plan, _ in job.plans for launch in plan.launches}
        return read_report(tool, ended, kernels, len(job.plans), plain)


def find_sanitizer() -> Sanitizer:
    """The one on the PATH, or where CUDA installs it."""
    found = shutil.which("compute-sanitizer")
    places = [Path(found)] if found else [place for place in _PLACES if place.is_file()]
    return Sanitizer(places[0] if places else None, os.environ)


def read_report(
    tool: str, ended: ToolRun, kernels: set[str], builds: int, plain: ToolRun | None = None
) -> AuditCheck:
    """The verdict in a tool's output. Reports that name none of the kernels are torch's or the driver's.

    `plain` is the same without the tool, where a kernel broke under it. It passes only where the tool has written its
    summary and all calls were made.
    """
    reports = [each for each in _reports(ended.output) if _is_error(each[0]) and _names(each, kernels)]
    if reports:
        told = dict.fromkeys(" | ".join(each[:4])[:400] for each in reports)  # each once, in their order
        detail = f"{len(reports)} errors: {'; '.join(list(told)[:_TOLD])}"
        return AuditCheck(name=tool, finding=Finding.FAILED, detail=detail)
    if plain is not None:
        return _broken(tool, _last(ended.output, BROKE), plain, builds)
    if trouble := _trouble(ended, builds):
        return AuditCheck(name=tool, finding=Finding.SKIPPED, detail=trouble)
    return AuditCheck(name=tool, finding=Finding.PASSED, detail=f"{builds} builds, one call each, without an error")


def _trouble(ended: ToolRun, builds: int) -> str:
    """Why a run without a report says nothing; "" where the tool has watched all calls and come to its end."""
    if ended.timed_out:
        return _late(ended.output)
    if ended.exit_code != 0:
        last = [line.strip() for line in ended.output.splitlines() if line.strip()][-1:] or ["it wrote nothing"]
        return f"it ended with exit code {ended.exit_code} and no report on the kernels: {last[0][:300]}"
    if (made := _calls(ended)) < builds:
        return f"it ended after {made} of {builds} calls"
    return "" if _summarised(ended.output) else "it ended without a summary of its own"


def _broken(tool: str, broke: str, plain: ToolRun, builds: int) -> AuditCheck:
    """The verdict on a kernel that broke under the tool, in the light of the same calls without it."""
    if plain.exit_code == 0 and _calls(plain) == builds:
        detail = f"under it the candidate broke on {broke}; without it the same calls come to their end"
    elif plain_broke := _last(plain.output, BROKE):
        detail = f"under it the candidate broke on {broke}; without it on {plain_broke}"
    else:
        detail = f"under it the candidate broke on {broke}; without it the calls could not be made"
        return AuditCheck(name=tool, finding=Finding.SKIPPED, detail=detail)
    return AuditCheck(name=tool, finding=Finding.FAILED, detail=detail)


def _late(output: str) -> str:
    """Where a tool was when its time was over. A kernel may honestly be a thousand times slower under one."""
    calling, called = _last(output, CALLING), _last(output, CALLED)
    if calling and calling != called:
        return f"it ran, and under it the call on {calling} had not ended after {TIMEOUT_S:g} s"
    step = "" if READY in output.splitlines() else ", and had not come to the first call"
    return f"it took longer than {TIMEOUT_S:g} s{step}"


def _last(output: str, word: str) -> str:
    """What the runner said last with that word; "" where it did not."""
    said = [line.removeprefix(word) for line in output.splitlines() if line.startswith(word)]
    return said[-1][:300] if said else ""


def _calls(ended: ToolRun) -> int:
    return sum(line.startswith(CALLED) for line in ended.output.splitlines())


def _summarised(output: str) -> bool:
    """Whether the tool itself came to its end: it closes with a summary, even of no errors."""
    return any(line.startswith(_MARK) and "SUMMARY: " in line for line in output.splitlines())


def _reports(output: str) -> list[list[str]]:
    """The tool's paragraphs: a first line, and the deeper lines that belong to it."""
    reports: list[list[str]] = []
    for line in output.splitlines():
        if not line.startswith(_MARK):
            continue
        text = line.removeprefix(_MARK)
        if text.startswith("     ") and reports:
            reports[-1].append(text.strip())
        elif text.strip():
            reports.append([text.strip()])
    return reports


def _is_error(first_line: str) -> bool:
    """Whether a paragraph is an error: racecheck also writes warnings and information, and every tool a summary."""
    return not first_line.startswith(("Warning", "Info", "ERROR SUMMARY", "RACECHECK SUMMARY", "COMPUTE-SANITIZER"))


def _names(report: Sequence[str], kernels: set[str]) -> bool:
    words = set(re.findall(r"\w+", " ".join(report)))
    return bool(words & kernels)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> ToolRun:
    """All that the command writes; it ends with us, however we end. Raises OSError where it does not start."""
    reading, writing = os.pipe()  # its stdin, of which only we hold the other end
    try:
        with subprocess.Popen(  # noqa: S603  # our own runner, under the sanitizer
            command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                kill_at_hangup(reading, process.pid)
                output, _ = process.communicate(timeout=TIMEOUT_S)
                return ToolRun(exit_code=process.returncode, output=output)
            except subprocess.TimeoutExpired as late:
                _kill(process)
                return ToolRun(exit_code=-signal.SIGKILL, output=_text(late.stdout), timed_out=True)
            except BaseException:  # an interruption must not wait for the tool, as leaving the block does
                _kill(process)
                raise
    finally:
        os.close(reading)
        os.close(writing)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process and all that it started in its session."""
    with suppress(ProcessLookupError):  # it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
