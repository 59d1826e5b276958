"""A model of the Hopper seed's schedule and pipeline, which follows kernels/seed/hopper.cu line by line.

Warpgroups are its threads. Copies land at random times and threads advance in random order.
"""


class Form:
    """A build's sizes, and what `Schedule` and the masks make of a scenario."""

    def __init__(self, plan):
        self.__dict__.update({name.lower(): value for name, value in plan.build.defines})
        self.scenario = s = plan.scenario
        self.offset = s.seqlen_k - s.seqlen_q
        self.row_tiles = -(-s.seqlen_q // self.block_m)
        self.groups = self.section = s.batch * s.heads
        self.grid = plan.launches[0].grid[0]
        if s.causal:
            pack = s.heads // s.kv_heads
            fit = max(1, (self.l2_mib << 20) // (s.seqlen_k * s.head_dim * 4))
            self.section = min(self.groups, fit * pack)
            filled = self.rounds_of(self.section) * self.grid // self.row_tiles // pack * pack
            self.section = min(self.groups, max(self.section, filled))
        self.rounds = self.rounds_of(self.section)

    def rounds_of(self, heads):
        return -(-heads * self.row_tiles // self.grid)

    def jobs(self, block):
        """(batch, head, first row, tiles of keys) of a block, in order."""
        n, found = 0, []
        while True:
            number, turn = divmod(n, self.rounds)
            first = number * self.section
            if first >= self.groups:
                return found
            turned = self.scenario.causal and (turn + number) % 2
            item = turn * self.grid + (self.grid - 1 - block if turned else block)
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
        return (first and beyond) or bool(self.scenario.causal and end - 1 > first_row + self.offset)


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
        self.by_group = bool(form.wide)
        places = form.consumers if self.by_group else form.q_buffers
        self.q_full = [Barrier(1) for _ in range(places)]
        self.q_empty = [Barrier(1 if self.by_group else form.consumers) for _ in range(places)]
        self.q = [None] * places
        self.stages = {"k": form.k_stages, "v": form.v_stages}
        self.full = {x: [Barrier(1) for _ in range(n)] for x, n in self.stages.items()}
        self.empty = {x: [Barrier(form.consumers) for _ in range(n)] for x, n in self.stages.items()}
        self.held = {x: [None] * n for x, n in self.stages.items()}
        self.turns = [Turn() for _ in range(form.consumers)]
        self.copies: list = []
        self.products: dict = {group: [] for group in range(form.consumers)}

    def run(self):
        """Every warpgroup's products: (k or v, batch, kv head, tile of keys; batch, head, first row of the queries)."""
        threads = [self.produce(), *(self.compute(group) for group in range(self.form.consumers))]
        waits = dict.fromkeys(threads)
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
                assert form.q_registers or self.q[place][0] == count
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
