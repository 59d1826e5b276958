"""The Hopper seed's schedule and its pipeline, modelled: who takes which tile when, and that nobody waits for ever.

The model follows kernels/seed/hopper.cu line by line, at the granularity of warpgroups; copies land at random times and
threads advance in random order. Nothing runs on a GPU.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from fitness.manifest import read_manifest, with_knobs
from fitness.planner import plan_scenario
from fitness.scenario import ElementType, Scenario

SOURCE = (Path(__file__).parents[2] / "kernels" / "seed" / "hopper.cu").read_text()
SM_COUNT = 132


def a_plan(shape, *, sm_count=SM_COUNT, knobs=None):
    batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, causal = shape
    scenario = Scenario(
        batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim,
        causal=bool(causal), element_type=ElementType.BF16,
    )  # fmt: skip
    return plan_scenario(read_manifest(with_knobs(SOURCE, knobs or {})), scenario, sm_count)


class Form:
    """A build's sizes, and what `Schedule` and the masks make of a scenario."""

    def __init__(self, plan):
        self.__dict__.update({name.lower(): value for name, value in plan.build.defines})
        self.scenario = s = plan.scenario
        self.offset = s.seqlen_k - s.seqlen_q
        self.row_tiles = -(-s.seqlen_q // self.block_m)
        self.groups = self.section = s.batch * s.heads
        if s.causal:
            fit = max(1, (self.l2_mib << 20) // (s.seqlen_k * s.head_dim * 4))
            self.section = min(self.groups, fit * (s.heads // s.kv_heads))
        self.grid = plan.launches[0].grid[0]
        self.blocks = self.grid if self.pipelined else self.section * self.row_tiles
        self.rounds = -(-self.section * self.row_tiles // self.blocks)

    def jobs(self, block):
        """(batch, head, first row, tiles of keys) of a block, in order."""
        n, found = (0, []) if self.pipelined else (block // self.blocks, [])
        while True:
            number, turn = divmod(n, self.rounds)
            first = number * self.section
            if first >= self.groups or (found and not self.pipelined):
                return found
            turned = self.pipelined and self.scenario.causal and (turn + number) % 2
            place = block % self.blocks
            item = turn * self.blocks + (self.blocks - 1 - place if turned else place)
            width = min(self.section, self.groups - first)
            if item < width * self.row_tiles:
                found.append(self.job(item, first, width))
            n += 1

    def job(self, item, first, width):
        s = self.scenario
        group, row_tile = divmod(item, self.row_tiles)
        keys = s.seqlen_k
        if s.causal:
            group, row_tile = first + item % width, self.row_tiles - 1 - item // width
            keys = min((row_tile + 1) * self.block_m, s.seqlen_q) + self.offset
        return (*divmod(group, s.heads), row_tile * self.block_m, max(-(-keys // self.block_n), 1))

    def seen(self, first_row, tiles):
        """How many tiles a warpgroup computes."""
        if first_row >= self.scenario.seqlen_q:
            return 0
        if not self.scenario.causal:
            return tiles
        return min(max(-(-(first_row + 64 + self.offset) // self.block_n), 1), tiles)

    def masked(self, first_row, tile, *, first):
        """Whether a warpgroup masks the tile; the last tile of the keys can only be the first that it takes."""
        end = (tile + 1) * self.block_n
        beyond = end > self.scenario.seqlen_k
        if self.pipelined:
            return (first and beyond) or bool(self.scenario.causal and end - 1 > first_row + self.offset)
        unmasked = self.scenario.seqlen_k // self.block_n
        if self.scenario.causal:
            unmasked = max(min(first_row + self.offset + 1, self.scenario.seqlen_k), 0) // self.block_n
        return tile >= unmasked


class Barrier:
    """An mbarrier: a phase completes when `count` have arrived."""

    def __init__(self, count):
        self.count, self.arrived, self.phase = count, 0, 0

    def arrive(self):
        self.arrived += 1
        assert self.arrived <= self.count
        if self.arrived == self.count:
            self.arrived, self.phase = 0, self.phase + 1

    def passed(self, parity):
        return self.phase % 2 != parity % 2


class Turn:
    """A named barrier of two warpgroups: one arrives, one waits."""

    def __init__(self):
        self.given = self.waiting = 0

    def give(self):
        self.given += 1
        assert self.given - self.waiting <= 1  # a second arrival would complete the barrier without its waiter


class Pipeline:
    """One block's producer and computing warpgroups, as generators that yield what they wait for."""

    def __init__(self, form, jobs, rng):
        self.form, self.jobs, self.rng = form, jobs, rng
        groups = range(form.consumers)
        self.by_group = bool(form.wide)
        places = form.consumers if self.by_group else form.q_buffers
        self.q_full = [Barrier(1) for _ in range(places)]
        self.q_empty = [Barrier(1 if self.by_group else form.consumers) for _ in range(places)]
        self.q = [None] * places
        self.stages = {"k": form.k_stages, "v": form.v_stages}
        self.full = {x: [Barrier(1) for _ in range(n)] for x, n in self.stages.items()}
        self.empty = {x: [Barrier(form.consumers) for _ in range(n)] for x, n in self.stages.items()}
        self.held = {x: [None] * n for x, n in self.stages.items()}
        self.turns = [Turn() for _ in groups]
        self.copies, self.products = [], {group: [] for group in groups}

    def run(self):
        """Every warpgroup's (scores or values, batch, kv head, tile of keys, batch and head of its queries, first row)."""
        threads = [self.produce(), *(self.compute(group) for group in range(self.form.consumers))]
        waits = {thread: None for thread in threads}
        while waits or self.copies:
            ready = [thread for thread, wait in waits.items() if wait is None or wait()]
            assert ready or self.copies, "deadlock"
            if self.copies and (not ready or self.rng.random() < 0.3):
                self.copies.pop(self.rng.randrange(len(self.copies)))()
                continue
            thread = self.rng.choice(ready)
            waits[thread] = next(thread, "done")
            if waits[thread] == "done":
                del waits[thread]
        return self.products

    def load(self, kind, at, what):
        stage, times = at % self.stages[kind], at // self.stages[kind]
        yield lambda: self.empty[kind][stage].passed(times + 1)

        def land():
            self.held[kind][stage] = (at, what)
            self.full[kind][stage].arrive()

        self.copies.append(land)

    def load_queries(self, count, job):
        for place in range(self.form.consumers) if self.by_group else [count % self.form.q_buffers]:
            times = count // self.form.q_buffers
            yield lambda place=place, times=times: self.q_empty[place].passed(times + 1)

            def land(place=place):
                self.q[place] = (count, job)
                self.q_full[place].arrive()

            self.copies.append(land)

    def produce(self):
        form, at, previous, count = self.form, 0, None, 0
        pack = form.scenario.heads // form.scenario.kv_heads
        for count, job in enumerate(self.jobs):
            batch, head, _, tiles = job
            if form.q_buffers == 2:
                yield from self.load_queries(count, job)
            for tile in reversed(range(tiles)):
                what = (batch, head // pack, tile)
                yield from self.load("k", at, what)
                if form.q_registers and tile == tiles - 1:
                    yield from self.load_queries(count, job)
                if at > 0:
                    yield from self.load("v", at - 1, previous)
                if self.by_group and tile == tiles - 1:
                    yield from self.load_queries(count, job)
                previous, at = what, at + 1
        yield from self.load("v", at - 1, previous)
        yield from self.load_queries(count + 1, None)

    def landed(self, kind, at):
        stage, times = at % self.stages[kind], at // self.stages[kind]
        return lambda: self.full[kind][stage].passed(times)

    def release(self, kind, at):
        self.empty[kind][at % self.stages[kind]].arrive()

    def multiply(self, group, kind, at, queries):
        held, what = self.held[kind][at % self.stages[kind]]
        assert held == at
        self.products[group].append((kind, *what, *queries))

    def take_turn(self, group):
        turn = self.turns[group]
        mine = turn.waiting
        yield lambda: turn.given > mine
        turn.waiting += 1

    def pass_turn(self, group):
        self.turns[(group + 1) % self.form.consumers].give()

    def compute(self, group):
        form, before, pending = self.form, 0, None
        if group == form.consumers - 1:
            self.turns[0].give()
        for count in range(len(self.jobs) + 1):
            place = group if self.by_group else count % form.q_buffers
            times = count // form.q_buffers
            yield lambda place=place, times=times: self.q_full[place].passed(times)
            number, job = self.q[place]
            assert number == count
            if form.q_registers:
                self.q_empty[place].arrive()
            batch, head, job_row, tiles = job or (0, 0, 0, 0)
            first_row = job_row + group * 64
            seen = form.seen(first_row, tiles)
            skipped, end = tiles - seen, before + tiles
            flush = pending is not None and (skipped > 0 or tiles == 0)
            if flush:
                yield self.landed("v", before - 1)
                if tiles:
                    yield from self.take_turn(group)
                self.multiply(group, "v", before - 1, pending)
                if tiles:
                    self.pass_turn(group)
                yield None
                self.release("v", before - 1)
                pending = None
            if tiles == 0:
                break
            for i in range(skipped):
                yield self.landed("k", before + i)
                yield self.landed("v", before + i)
                if not (flush and i == 0):
                    yield from self.take_turn(group)
                    self.pass_turn(group)
                self.release("k", before + i)
                self.release("v", before + i)
            for at in range(before + skipped, end):
                yield self.landed("k", at)
                yield from self.take_turn(group)
                self.multiply(group, "k", at, (batch, head, first_row))
                if pending is not None:
                    yield self.landed("v", at - 1)
                    self.multiply(group, "v", at - 1, pending)
                self.pass_turn(group)
                yield None
                self.release("k", at)
                if self.by_group and at + 1 == end:
                    self.q_empty[place].arrive()
                if pending is not None:
                    self.release("v", at - 1)
                pending = (batch, head, first_row)
            if not form.q_registers and not (self.by_group and seen):
                self.q_empty[place].arrive()
            before = end
        if group == 0:
            yield from self.take_turn(0)


SHAPES = [
    # batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, causal
    (32, 32, 32, 512, 512, 64, 1),
    (4, 32, 32, 512, 512, 64, 0),
    (1, 16, 16, 16384, 16384, 128, 1),
    (2, 32, 8, 2048, 2048, 128, 1),
    (4, 32, 8, 512, 8192, 128, 1),
    (2, 16, 16, 2048, 512, 128, 0),
    (8, 14, 2, 1023, 1023, 64, 1),
    (3, 6, 2, 333, 70, 96, 1),
    (3, 6, 2, 70, 333, 192, 1),
    (1, 2, 1, 4224, 129, 256, 1),
    (5, 3, 1, 130, 1, 64, 1),
    (2, 3, 1, 131, 33, 128, 0),
    (2, 8, 8, 1025, 1024, 256, 1),
]
FORMS = [{}, {"WIDE_PIPELINED": 1, "WARPGROUPS_64": 2, "Q_REGISTERS_128": 0, "STAGES_64": 2}]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", FORMS)
def test_each_tile_of_queries_is_the_job_of_one_block_once(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs))
    taken = Counter(job[:3] for block in range(form.grid) for job in form.jobs(block))
    expected = {
        (batch, head, tile * form.block_m)
        for batch in range(shape[0]) for head in range(shape[1]) for tile in range(form.row_tiles)
    }  # fmt: skip
    assert set(taken) == expected
    assert set(taken.values()) == {1}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", FORMS)
def test_every_key_that_a_row_sees_is_visited_and_none_that_it_does_not_see_goes_unmasked(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs))
    seqlen_q, seqlen_k, causal = shape[3], shape[4], shape[6]
    for _, _, job_row, tiles in {job for block in range(form.grid) for job in form.jobs(block)}:
        for first_row in range(job_row, min(job_row + form.block_m, seqlen_q), 64):
            last_row = min(first_row + 63, seqlen_q - 1)
            first_sees, last_sees = (
                min(row + seqlen_k - seqlen_q, seqlen_k - 1) if causal else seqlen_k - 1 for row in (first_row, last_row)
            )
            seen = form.seen(first_row, tiles)
            assert 1 <= seen <= tiles
            assert last_sees < seen * form.block_n
            for tile in range(seen):
                whole = (tile + 1) * form.block_n - 1 <= first_sees
                assert whole or form.masked(first_row, tile, first=tile == seen - 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", [{"WIDE_PIPELINED": 1}, FORMS[1]])
def test_the_pipeline_ends_and_takes_scores_and_values_of_the_same_tiles(shape, knobs):
    form = Form(a_plan(shape, knobs=knobs, sm_count=3))
    rng = random.Random(str(shape))
    for block in range(form.grid):
        jobs = form.jobs(block)[:9]
        for group, products in Pipeline(form, jobs, rng).run().items():
            pack = form.scenario.heads // form.scenario.kv_heads
            expected = [
                (batch, head // pack, tile, batch, head, row + group * 64)
                for batch, head, row, tiles in jobs
                for tile in reversed(range(form.seen(row + group * 64, tiles)))
            ]
            for kind in ("k", "v"):
                assert [product[1:] for product in products if product[0] == kind] == expected
