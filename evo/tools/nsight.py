"""Nsight Compute: counters of the kernels that one scenario launches, in a small process of their own."""

import csv
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from evo.tools.profiled_run import Launched
from fitness.child_environment import listed_environment

COUNTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gpu__time_duration.sum": "duration, ns",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute throughput, % of peak",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory throughput, % of peak",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": "device memory throughput, % of peak",
        "dram__bytes_read.sum": "bytes read from device memory",
        "dram__bytes_write.sum": "bytes written to device memory",
        "lts__t_sector_hit_rate.pct": "L2 hit rate, %",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts of shared memory",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor cores active, % of peak",
        "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "special function unit, % of peak",
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FMA pipe, % of peak",
        "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "ALU pipe, % of peak",
        "sm__inst_executed.avg.per_cycle_active": "instructions per cycle",
        "sm__warps_active.avg.pct_of_peak_sustained_active": "warps active, % of peak",
        "launch__registers_per_thread": "registers per thread",
        "launch__waves_per_multiprocessor": "waves per multiprocessor",
        **{
            f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": f"warps stalled per issue, {words}"
            for name, words in {
                "barrier": "at a barrier",
                "gmma": "waiting for wgmma",
                "long_scoreboard": "waiting for global or local memory",
                "math_pipe_throttle": "math pipe busy",
                "mio_throttle": "memory instruction queue full",
                "short_scoreboard": "waiting for shared memory or special functions",
                "wait": "fixed latency",
            }.items()
        },
    }
)
_TIMEOUT_S: Final = 180.0
_UNKNOWN: Final = re.compile(r"==(?:ERROR|WARNING)==.*?(?:[Ff]ailed to find|not found|[Uu]nknown|[Ii]nvalid)[^\n]*")
_METRIC: Final = re.compile(r"\w+__[\w.]+")


class NoCounters(Exception):
    """Nsight Compute gave none; the message says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class KernelCounters:
    """One launch: counter name to value, as Nsight Compute prints it, in base units."""

    kernel: str
    values: Mapping[str, str]


class NsightCompute:
    """`ncu` at a path, without touching the clocks. Of the `environment` the profiled process gets what is listed."""

    def __init__(self, ncu: Path, environment: Mapping[str, str]) -> None:
        self._ncu = ncu
        self._environment = listed_environment(environment)

    def counters(self, launched: Launched) -> tuple[KernelCounters, ...]:
        """The counters of each launch of the scenario, in order. Raises NoCounters."""
        names = list(COUNTERS)
        output = self._run(launched, names)
        unknown = set(_METRIC.findall("\n".join(_UNKNOWN.findall(output)))).intersection(names)
        if unknown:  # another GPU, or another version, that lacks some: the others count
            output = self._run(launched, [name for name in names if name not in unknown])
        found = read_counters(output)
        if not found:
            raise NoCounters(_complaint(output))
        return found

    def _run(self, launched: Launched, names: Sequence[str]) -> str:
        kernels = "|".join(dict.fromkeys(launch.kernel for launch in launched.plan.launches))
        with tempfile.TemporaryDirectory(prefix="evo-ncu-") as folder:
            job = Path(folder, "launched.pickle")
            job.write_bytes(pickle.dumps(launched))
            runner = (sys.executable, "-m", "evo.tools.profiled_run", str(job))
            command = (
                str(self._ncu), "--clock-control", "none", "--csv", "--print-units", "base",
                "--metrics", ",".join(names), "--kernel-name", f"regex:^({kernels})$", *runner,
            )  # fmt: skip
            return _output(command, {**self._environment, "TMPDIR": folder})


def find_ncu() -> NsightCompute | None:
    """The `ncu` on the PATH; None where there is none."""
    path = shutil.which("ncu")
    return None if path is None else NsightCompute(Path(path), os.environ)


def read_counters(text: str) -> tuple[KernelCounters, ...]:
    """The launches in what `ncu --csv` writes, a row for each launch and counter; counters without a value left out."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    launches: dict[str, tuple[str, dict[str, str]]] = {}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        name, value = row.get("Metric Name"), row.get("Metric Value")
        if name and value and value != "n/a":
            launches.setdefault(row["ID"], (row["Kernel Name"], {}))[1][name] = value.replace(",", "")
    return tuple(KernelCounters(kernel=kernel, values=values) for kernel, values in launches.values())


def _output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """All that the command writes. Raises NoCounters where it does not start, or runs on."""
    try:
        with subprocess.Popen(  # noqa: S603  # our own runner, under ncu
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                return process.communicate(timeout=_TIMEOUT_S)[0]
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
    except subprocess.TimeoutExpired as error:
        raise NoCounters(f"it took longer than {_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise NoCounters(str(error)) from error


def _complaint(output: str) -> str:
    """What ncu complains about, or else the last line of its output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    return (complaints or lines[-1:] or ["it wrote nothing"])[0][:300]
