"""Whether the gate lets every honest kernel through: FA3, FA4, cuDNN and kernels of ours, on core26, seed after seed.

Each seed draws one set of inputs for every cell, with the distributions by turns; all kernels are held against one
reference. Dear cells come in some of the seeds only, and kernels other than FA3 may get each cell by turns. Every run
goes on where the last one in the file stopped and appends a line for each kernel: how many outputs, which failed, and
the greatest share of each bound that any reached. Of every output some rows are judged by themselves too, as those of
timed calls are.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.device import Judge, open_judge
from benchmarks.ending import ended
from benchmarks.gate_tightness import BOUNDS
from benchmarks.record import command_line
from evo.data import shipped_kernels
from evo.suites import load_suite
from fitness.backends.backend import Backend, Bound, Tensors
from fitness.baselines.selection import build_baseline
from fitness.evaluation import ScenarioCheck, Status
from fitness.faults import BaselineUnavailableError, CandidateFault
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.manifest import read_manifest
from fitness.plan import ScenarioPlan
from fitness.planner import plan_scenario
from fitness.reference import compute_reference
from fitness.row_sample import draw_block, judge_rows
from fitness.scenario import Scenario, Suite
from population.atomic_file import strict_json

BASELINES = ("fa3", "fa4", "cudnn")
IN_FULL = "fa3"  # the baseline that scores are made of: no seed goes by without it
MIDDLE, LONG = 4096, 16384  # keys; from the second on the references cost twice as much as those of all other cells
Output = tuple[torch.Tensor, torch.Tensor | None]  # o and lse, where there is one


@dataclass(frozen=True, kw_only=True)
class Honest:
    """One kernel on one cell; `call` gives its output on the cell's inputs, or raises CandidateFault."""

    kernel: str
    call: Callable[[], Output]
    every: int = 1  # it gets the cell in every so many-th of the cell's seeds


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell's inputs, which all its kernels get."""

    place: int
    scenario: Scenario
    tensors: Tensors
    every: int  # it comes in every so many-th seed
    kernels: tuple[Honest, ...]

    def takers(self, turn: int) -> list[Honest]:
        """The kernels whose turn it is when the cell comes for the `turn`-th time; on another cell others are.

        A kernel keeps its turn until every distribution has come: none of them is left out on any cell.
        """
        rounds = turn // len(Distribution)
        return [honest for honest in self.kernels if (rounds + self.place) % honest.every == 0]


def distribution_at(turn: int) -> Distribution:
    """What a cell's inputs are drawn from when it comes for the `turn`-th time."""
    kinds = tuple(Distribution)
    return kinds[turn % len(kinds)]


@dataclass(kw_only=True)
class Tally:
    """What a run found of one kernel."""

    outputs: dict[str, int] = field(default_factory=dict)  # by cell
    failures: list[str] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)  # by bound: the greatest error as a share of it
    shares_of_rows: dict[str, float] = field(default_factory=dict)  # the same of some rows by themselves

    def add(self, whole: ScenarioCheck, rows: ScenarioCheck) -> None:
        """Count the verdicts on one output."""
        self.outputs[whole.scenario] = self.outputs.get(whole.scenario, 0) + 1
        for check, shares in ((whole, self.shares), (rows, self.shares_of_rows)):
            if not check.passed:
                place = f"{check.scenario}, {check.distribution} inputs, seed {check.input_seed}"
                self.failures.append(f"{place}: {check.reason}")
            for name, bound in BOUNDS.items():
                error, allowed = getattr(check, name), getattr(check, bound)
                if error is not None and allowed:
                    shares[name] = max(shares.get(name, 0.0), error / allowed)


def main() -> int:
    """Run until the seeds or the seconds are used up; append what was found."""
    arguments = _arguments()
    deadline = time.monotonic() + arguments.seconds
    suite = load_suite("core26")
    with open_judge() as judge_parts:
        from fitness.backends.cuda import CudaBackend  # CuPy, which only GPU machines have

        backend = CudaBackend(device_index=0)
        cells, versions = _lay_out(judge_parts, backend, suite, arguments)
        first = _next_seed(arguments.out)
        prepared, tallies, seed = time.monotonic(), dict[str, Tally](), first
        try:
            while seed < first + arguments.seeds and time.monotonic() < deadline:
                _one_seed(seed, cells, tallies)
                seed += 1
        finally:
            circumstances = {
                "device": judge_parts.gpu.name, "driver": judge_parts.machine.driver,
                "date": datetime.now(UTC).isoformat(timespec="seconds"), "command": command_line(sys.argv),
                "suite": suite.name, "first_seed": first, "seeds": seed - first,
                "seconds": round(time.monotonic() - prepared, 1),
            }  # fmt: skip
            _append(arguments.out, circumstances, tallies, versions)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/honest-kernels.jsonl"), help="appended to")
    parser.add_argument("--seeds", type=int, default=1000, help="at most so many in this run")
    parser.add_argument("--seconds", type=float, default=300.0, help="no seed begins later than this")
    parser.add_argument("--long-every", type=int, default=10, help=f"cells of {LONG} keys in every so many-th seed")
    parser.add_argument("--middle-every", type=int, default=1, help=f"those of at least {MIDDLE} keys below that")
    parser.add_argument("--others-every", type=int, default=1, help=f"of a cell's seeds, for kernels beside {IN_FULL}")
    parser.add_argument("--slowest-ms", type=float, default=20.0, help="a kernel slower than that gets no dearer cells")
    parser.add_argument("--only", nargs="*", help="kernels by name; all where left out")
    arguments: argparse.Namespace = parser.parse_args()
    return arguments


def _sources() -> dict[str, Path]:
    """Our own kernels by name, and those that a Hopper prototype was bred by."""
    bred = sorted(Path("tests/fitness/kernels/hopper").glob("*.cu"))
    return {path.stem: path for path in [*shipped_kernels(), *bred]}


def _lay_out(
    parts: Judge, backend: Backend, suite: Suite, arguments: argparse.Namespace
) -> tuple[list[Cell], dict[str, str]]:
    """The cells with their kernels, and the kernels' versions."""
    wanted = arguments.only or [*BASELINES, *_sources()]
    versions: dict[str, str] = {}
    kernels: dict[str, list[Honest]] = {cell.name: [] for cell in suite.scenarios}
    tensors = {cell.name: _inputs(cell) for cell in suite.scenarios}
    for name in wanted:
        try:
            if name in BASELINES:
                made = _baseline(name, suite, tensors)
            else:
                made = _candidate(_sources()[name], parts, backend, suite, tensors)
            for cell, version, honest in made:
                if _milliseconds(honest.call) > arguments.slowest_ms:
                    break
                kernels[cell].append(replace(honest, every=1 if name == IN_FULL else arguments.others_every))
                versions[honest.kernel] = version
        except (BaselineUnavailableError, CandidateFault) as fault:
            print(f"{name} is left out: {fault}")
    cells = [
        Cell(
            place=place, scenario=cell, tensors=tensors[cell.name], every=_every(cell, arguments),
            kernels=tuple(kernels[cell.name]),
        )
        for place, cell in enumerate(suite.scenarios)
    ]  # fmt: skip
    return cells, versions


def _every(cell: Scenario, arguments: argparse.Namespace) -> int:
    often: int = 1
    if cell.seqlen_k >= MIDDLE:
        often = arguments.long_every if cell.seqlen_k >= LONG else arguments.middle_every
    return often


def _inputs(cell: Scenario) -> Tensors:
    q = torch.zeros(cell.batch, cell.seqlen_q, cell.heads, cell.head_dim, dtype=torch.bfloat16, device="cuda")
    k, v = (q.new_zeros(cell.batch, cell.seqlen_k, cell.kv_heads, cell.head_dim) for _ in range(2))
    draw_inputs(Distribution.NORMAL, 0, q, k, v)
    lse = torch.empty(cell.batch, cell.heads, cell.seqlen_q, device="cuda")
    return Tensors(q=q, k=k, v=v, o=torch.empty_like(q), lse=lse)


def _baseline(name: str, suite: Suite, tensors: Mapping[str, Tensors]) -> Iterator[tuple[str, str, Honest]]:
    baseline = build_baseline(name)
    for cell in _cheapest_first(suite):
        if not baseline.cannot(cell):
            for setting, call in baseline.calls(tensors[cell.name], cell).items():
                kernel = name if setting == "default" else f"{name} ({setting})"
                yield cell.name, baseline.version, Honest(kernel=kernel, call=_without_lse(call))


def _cheapest_first(suite: Suite) -> list[Scenario]:
    return sorted(suite.scenarios, key=lambda cell: cell.flops)


def _without_lse(call: Callable[[], torch.Tensor]) -> Callable[[], Output]:
    return lambda: (call(), None)


def _candidate(
    path: Path, parts: Judge, backend: Backend, suite: Suite, tensors: Mapping[str, Tensors]
) -> Iterator[tuple[str, str, Honest]]:
    source = path.read_bytes().decode("utf-8")
    plans = list(_plans(source, suite, parts.gpu.sm_count))
    builds = tuple(dict.fromkeys(plan.build for plan in plans))
    binaries = {build.build: build.binary for build in parts.compiler.compile(source, builds)}
    for plan in plans:
        cell = plan.scenario.name
        call = _called(backend.bind(plan, binaries[plan.build]), tensors[cell])
        yield cell, parts.compiler.version, Honest(kernel=path.stem, call=call)


def _plans(source: str, suite: Suite, sm_count: int) -> Iterator[ScenarioPlan]:
    """The cells that a kernel supports."""
    manifest = read_manifest(source)
    for cell in _cheapest_first(suite):
        try:
            yield plan_scenario(manifest, cell, sm_count)
        except CandidateFault as fault:
            if fault.status is not Status.UNSUPPORTED:
                raise


def _called(bound: Bound, inputs: Tensors) -> Callable[[], Output]:
    def call() -> Output:
        for name in ("q", "k", "v"):
            getattr(bound.tensors, name).copy_(getattr(inputs, name))
        bound.poison()
        bound.replay.run()
        return bound.tensors.o, bound.tensors.lse

    return call


def _milliseconds(call: Callable[[], Output]) -> float:
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def _one_seed(seed: int, cells: Sequence[Cell], tallies: dict[str, Tally]) -> None:
    for cell in cells:
        turn, not_now = divmod(seed, cell.every)
        takers = cell.takers(turn)
        if not_now or not takers:
            continue
        inputs, distribution = cell.tensors, distribution_at(turn)
        draw_inputs(distribution, seed, inputs.q, inputs.k, inputs.v)
        reference = compute_reference(inputs.q, inputs.k, inputs.v, cell.scenario)
        block = draw_block(cell.scenario, random.Random(seed))
        for honest in takers:
            case = Case(scenario=cell.scenario.name, distribution=distribution, stage=honest.kernel, input_seed=seed)
            o, lse = honest.call()
            found = replace(inputs, o=o, lse=reference.lse if lse is None else lse)
            rows = judge_rows(found, cell.scenario, [block], case)
            tallies.setdefault(honest.kernel, Tally()).add(judge(found.o, found.lse, reference, case), rows)


def _next_seed(path: Path) -> int:
    """The seed after the last one in the file."""
    if not path.exists():
        return 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return max((line["first_seed"] + line["seeds"] for line in lines), default=0)


def _append(
    path: Path, circumstances: Mapping[str, object], tallies: Mapping[str, Tally], versions: Mapping[str, str]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for kernel, tally in tallies.items():
            shares, shares_of_rows = (
                {name: round(share, 4) for name, share in each.items()} for each in (tally.shares, tally.shares_of_rows)
            )
            found = {
                "outputs": sum(tally.outputs.values()), "failed": len(tally.failures), "shares": shares,
                "shares_of_rows": shares_of_rows,
            }  # fmt: skip
            record = {"kernel": kernel, "version": versions[kernel], **circumstances, **found}
            record |= {"cells": tally.outputs, "failures": tally.failures}
            file.write(strict_json(record, sort_keys=False) + "\n")
            print(f"{kernel}: {found['outputs']} outputs, {found['failed']} failed, {shares}, rows {shares_of_rows}")
            for failure in tally.failures[:5]:
                print(f"  {failure}")
    print(f"appended to: {path}; {circumstances['seconds']} s")


if __name__ == "__main__":
    raise SystemExit(ended(main))
