"""A table of a whole grid, measured in sittings that may be cut off, and searches that never leave it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from small_search import SEED, SOURCE, judge_knobs, run_part, small_config, snapshot

from benchmarks.grid import narrowed, read_grid, variants
from benchmarks.growing_table import GrowingTable
from benchmarks.variant_table import GRID, KERNEL, measure
from fitness.backends.recorded import RecordedEvaluator, load_table
from fitness.evaluation import Evaluation
from fitness.faults import EnvironmentFault
from fitness.manifest import read_manifest
from population.run_folder import create_run_folder

ROOT = Path(__file__).parents[2]
WORDS = ("BLOCK_M=32,128", "STAGES=1,2,4")


class Judge:
    """Judges by rule, and may be cut off."""

    def __init__(self, *, cut_after: int | None = None) -> None:
        self.judged: list[str] = []
        self._cut_after = cut_after

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        done = []
        for place, source in enumerate(sources):
            if len(self.judged) == self._cut_after:
                raise KeyboardInterrupt
            self.judged.append(source)
            done.append(judge_knobs(source))
            if on_done is not None:
                on_done(place, done[-1])
        return done


@pytest.fixture
def seed() -> str:
    return narrowed(SOURCE, read_grid(WORDS))


def test_a_seed_offers_the_grid_alone(seed: str) -> None:
    offered = {knob.name: knob.choices for knob in read_manifest(seed).knobs}
    assert (offered.pop("BLOCK_M"), offered.pop("STAGES")) == ((32, 128), (1, 2, 4))
    assert offered
    assert all(len(choices) == 1 for choices in offered.values())
    sources = variants(seed)
    assert len(sources) == len(set(sources)) == 6
    assert seed in sources or read_manifest(SOURCE).knobs[0].value not in (32, 128)


@pytest.mark.parametrize("words", [["BLOCK_M"], ["BLOCK_M=1,1"], ["BLOCK_M=32", "BLOCK_M=64"], ["BLOCK_M=x"]])
def test_words_that_are_no_grid_are_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected a knob|invalid literal"):
        read_grid(words)


@pytest.mark.parametrize("word", ["NOTHING=1", "BLOCK_M=48"])
def test_what_the_kernel_does_not_offer_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="the kernel offers"):
        narrowed(SOURCE, read_grid([word]))


def test_the_default_grid_has_more_than_300_kernels_of_every_layer_but_compile() -> None:
    seed = narrowed((ROOT / KERNEL).read_text(encoding="utf-8"), read_grid(GRID))
    assert len(variants(seed)) == 324
    layers = {str(knob.layer) for knob in read_manifest(seed).knobs if len(knob.choices) > 1}
    assert layers == {"launch", "schedule", "memory", "instructions", "algorithm"}


def test_a_sitting_that_is_cut_off_is_gone_on_with(tmp_path: Path, seed: str) -> None:
    path, sources = tmp_path / "t.jsonl.xz", variants(seed)
    with pytest.raises(KeyboardInterrupt):
        measure(GrowingTable(path), sources, Judge(cut_after=4), seconds=10, chunk=3)
    assert load_table(path) == tuple(map(judge_knobs, sources[:4]))
    rest = Judge()
    assert measure(GrowingTable(path), sources, rest, seconds=10, chunk=3) == 0
    assert rest.judged == sources[4:]
    assert load_table(path) == tuple(map(judge_knobs, sources))
    assert [each.name for each in tmp_path.iterdir()] == ["t.jsonl.xz"]


def test_a_sitting_ends_when_its_time_is_up(tmp_path: Path, seed: str) -> None:
    ticks = count()
    table = GrowingTable(tmp_path / "t.jsonl.xz")
    assert measure(table, variants(seed), Judge(), seconds=2, chunk=2, clock=lambda: float(next(ticks))) == 4


def test_what_a_killed_sitting_had_written_counts_but_for_half_a_line(tmp_path: Path, seed: str) -> None:
    path, sources = tmp_path / "t.jsonl.xz", variants(seed)
    killed = GrowingTable(path)
    for source in sources[:3]:
        killed.add(judge_knobs(source))
    part = tmp_path / "t.jsonl.xz.part"
    content = part.read_text(encoding="utf-8")
    part.write_text(content[:-40], encoding="utf-8")
    again = GrowingTable(path)
    assert again.missing(sources) == sources[2:]
    again.add(judge_knobs(sources[2]))
    again.save(sources)
    assert load_table(path) == tuple(map(judge_knobs, sources[:3]))


def test_another_device_is_refused(tmp_path: Path, seed: str) -> None:
    table, sources = GrowingTable(tmp_path / "t.jsonl"), variants(seed)
    table.add(judge_knobs(sources[0]))
    other = judge_knobs(sources[1])
    with pytest.raises(EnvironmentFault, match="measure there, or name another table"):
        table.add(replace(other, environment=replace(other.environment, device="another")))
    assert table.missing(sources) == sources[1:]


def test_a_search_from_its_seed_never_leaves_the_table(tmp_path: Path, seed: str) -> None:
    table = RecordedEvaluator([judge_knobs(source) for source in variants(seed)])
    start = tmp_path / "grid.cu"
    start.write_text(seed, encoding="utf-8")
    run = create_run_folder(tmp_path, "run")
    run_part(replace(small_config(generations=4), seeds=[str(start)]), run, table)
    found = snapshot(run)["evaluations"]
    assert len(found) >= 4
    assert "UNSUPPORTED" not in {record["status"] for _, record in found}
    assert SEED.is_file()
