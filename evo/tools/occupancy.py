"""The tool `occupancy`: how many blocks of a draft fit on a multiprocessor, and what keeps more from fitting.

Limits: CUDA C++ Programming Guide, technical specifications per compute capability. How resources are handed out: the
CUDA occupancy calculator. Registers go to warps, in units, within each of a multiprocessor's four partitions; shared
memory goes to blocks, in units, with a kibibyte of the system's own beside it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from evo.tools.draft_judge import DraftJudge
from evo.tools.tool import schema
from fitness.evaluator import Compiled
from fitness.probe import Gpu

_WARP: Final = 32
_PARTITIONS: Final = 4
_REGISTERS: Final = 65536  # of a multiprocessor
_REGISTER_UNIT: Final = 256  # for one warp
_SHARED_UNIT: Final = 128
_RESERVED_SHARED_BYTES: Final = 1024
_SOURCE: Final = "limits: CUDA C++ Programming Guide, technical specifications per compute capability"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one multiprocessor holds."""

    warps: int
    blocks: int
    shared_bytes: int


LIMITS: Final[Mapping[str, Limits]] = MappingProxyType(
    {
        "sm_80": Limits(warps=64, blocks=32, shared_bytes=164 << 10),
        "sm_86": Limits(warps=48, blocks=16, shared_bytes=100 << 10),
        "sm_89": Limits(warps=48, blocks=24, shared_bytes=100 << 10),
        "sm_90": Limits(warps=64, blocks=32, shared_bytes=228 << 10),
        "sm_100": Limits(warps=64, blocks=32, shared_bytes=228 << 10),
    }
)


def blocks_by_limit(limits: Limits, *, threads: int, registers: int, shared_bytes: int) -> dict[str, int]:
    """How many blocks of `threads` threads each limit of a multiprocessor allows; the least of them run at once.

    `registers` are a thread's, `shared_bytes` a block's, static and dynamic together.
    """
    warps = -(-threads // _WARP)
    of_a_warp = _rounded_up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    of_a_block = _rounded_up(shared_bytes + _RESERVED_SHARED_BYTES, _SHARED_UNIT)
    return {
        "registers": _PARTITIONS * (_REGISTERS // _PARTITIONS // of_a_warp) // warps,
        "shared memory": limits.shared_bytes // of_a_block,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }


class Occupancy:
    """Works out occupancy on a GPU, or says that there is none."""

    name = "occupancy"
    description = (
        "how many blocks of each kernel of a draft fit on one multiprocessor, what limits them (registers, shared "
        "memory, warps or blocks), and how many waves the grids make; compiles, does not run"
    )
    parameters: Mapping[str, Any] = schema()

    def __init__(self, judge: DraftJudge, gpu: Gpu | None) -> None:
        self._judge = judge
        self._gpu = gpu

    def call(self, source: str, _arguments: Mapping[str, Any]) -> str:
        """One line for each kernel in each build and shape of block. Raises EnvironmentFault."""
        if self._gpu is None:
            return "not available: kernels are not judged on a GPU here"
        limits = LIMITS.get(self._gpu.arch.rstrip("a"))
        if limits is None:
            return f"not available: the limits of {self._gpu.arch} are not known here, only of {', '.join(LIMITS)}"
        compiled = self._judge.compiled(source)
        if isinstance(compiled, str):
            return compiled
        return "\n".join((*_lines(compiled, limits, self._gpu.sm_count), f"{self._gpu.arch}, {_SOURCE}"))


def _lines(compiled: Compiled, limits: Limits, sm_count: int) -> list[str]:
    builds = {each.build: each.report for each in compiled.builds}
    resources = {(build.name, each.kernel): each for build in builds.values() for each in build.kernels}
    grids: dict[tuple[str, str, tuple[int, int, int], int], list[int]] = {}
    for plan in compiled.plan.scenarios:
        for launch in plan.launches:
            key = (builds[plan.build].name, launch.kernel, launch.block, launch.shared_bytes)
            grids.setdefault(key, []).append(math.prod(launch.grid))
    lines = []
    for (build, kernel, block, dynamic), sizes in grids.items():
        used, threads = resources[build, kernel], math.prod(block)
        shared = used.shared_bytes + dynamic
        allowed = blocks_by_limit(limits, threads=threads, registers=used.registers, shared_bytes=shared)
        lines.append(
            f"{kernel}, {build}: {threads} threads, {used.registers} registers each, {shared} bytes of shared memory: "
            f"{_fitting(allowed, limits, threads)}; {_waves(sizes, min(allowed.values()) * sm_count)}"
        )
    return lines


def _waves(sizes: list[int], at_once: int) -> str:
    if not at_once:
        return "it cannot be launched"
    least, most = min(sizes), max(sizes)
    return f"grids of {least} to {most} blocks, {least / at_once:.2f} to {most / at_once:.2f} waves"


def _fitting(allowed: Mapping[str, int], limits: Limits, threads: int) -> str:
    blocks = min(allowed.values())
    binding = " and ".join(name for name, each in allowed.items() if each == blocks)
    warps = blocks * -(-threads // _WARP)
    each = ", ".join(f"{name} {number}" for name, number in allowed.items())
    return (
        f"{blocks} blocks on a multiprocessor, {warps} of {limits.warps} warps, limited by {binding} "
        f"(blocks allowed by {each})"
    )


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
