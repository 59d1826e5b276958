// A block of threads on one processor: who runs, who waits for whom, and what is wrong when nobody can go on.
//
// Scheduling is deterministic. Threads run in the order of their numbers, or backwards, each as far as it can; whoever
// is released by a barrier starts again with the first in that order. A kernel that lacks a barrier therefore reads
// what is not there yet in one of the two orders at least, every time.
#pragma once

namespace {
namespace evo {

constexpr unsigned max_threads = 1024;
constexpr unsigned warp_size = 32;
constexpr size_t max_dynamic_shared = 256 << 10;  // above the largest limit of any GPU
constexpr size_t guard_bytes = 64 << 10;          // the largest page of any system this runs on

enum class State : unsigned char { unstarted, ready, at_barrier, at_warp, done };

struct Thread {
    Context context;
    uint3 index;
    unsigned number;  // its linear index in the block
    unsigned stack;
    State state;
    int line;                  // of the barrier or warp function that it waits in
    unsigned lanes;            // waiting in a warp function: for these
    unsigned source;           // and for the value of this lane, or for a vote
    unsigned long long value;  // what it brings there, and then what it gets
};

constexpr unsigned vote = ~0u;

struct Warp {
    unsigned present, waiting;  // lanes
};

struct Runtime {
    Thread threads[max_threads];  // in the order that they run in
    Warp warps[max_threads / warp_size];
    Thread* current;
    unsigned count, alive, waiting;
    unsigned ayes, ayes_then, waiting_then;  // of a barrier's vote: so far, and at the last barrier
    bool backwards;
    void (*body)();
    const void* parameters;
    Context main;
    Stacks stacks;
    bool failed;
    char reason[256];
    uint3 thread_index, block_index;
    dim3 block_size, grid_size;
};

// The only writable data of a candidate's binary besides its shared memory.
static Runtime runtime;
alignas(guard_bytes) static unsigned char dynamic_shared[max_dynamic_shared + guard_bytes];

[[noreturn]] inline void leave(Thread& self) {
    switch_context(self.context, runtime.main);
    __builtin_unreachable();
}

template <class... Values>
[[noreturn]] __attribute__((noinline, cold)) void fail(const char* format, Values... values) {
    int length = snprintf(runtime.reason, sizeof runtime.reason, format, values...);
    if (length >= 0 && static_cast<size_t>(length) < sizeof runtime.reason) {
        snprintf(runtime.reason + length, sizeof runtime.reason - length, " (block %u, %u, %u)",
                 runtime.block_index.x, runtime.block_index.y, runtime.block_index.z);
    }
    runtime.failed = true;
    leave(*runtime.current);
}

[[noreturn]] __attribute__((noinline, cold)) inline void fail_stuck() {
    const Thread* first = nullptr;
    for (unsigned i = 0; i < runtime.count; ++i) {
        const Thread& thread = runtime.threads[i];
        if (thread.state == State::done) {
            continue;
        }
        if (first == nullptr) {
            first = &thread;
        } else if (thread.state != first->state || thread.line != first->line || thread.lanes != first->lanes) {
            fail("deadlock: thread %u waits at line %d and thread %u at line %d", first->number, first->line,
                 thread.number, thread.line);
        }
    }
    fail("deadlock: thread %u waits at line %d for threads that never come", first->number, first->line);
}

// The first thread from a position on, round the block, that can run; null where none can.
inline Thread* runnable(unsigned position) {
    for (unsigned steps = 0; steps < runtime.count; ++steps, ++position) {
        position = position < runtime.count ? position : 0;
        Thread& thread = runtime.threads[position];
        if (thread.state <= State::ready) {
            return &thread;
        }
    }
    return nullptr;
}

inline unsigned position_of(const Thread& thread) { return static_cast<unsigned>(&thread - runtime.threads); }

inline Thread& thread_numbered(unsigned number) {
    return runtime.threads[runtime.backwards ? runtime.count - 1 - number : number];
}

inline unsigned first_position(unsigned warp) {
    unsigned last = (warp + 1) * warp_size - 1;
    unsigned number = !runtime.backwards ? warp * warp_size : last < runtime.count ? last : runtime.count - 1;
    return position_of(thread_numbered(number));
}

inline void make_current(Thread& thread) {
    thread.state = State::ready;
    runtime.current = &thread;
    runtime.thread_index = thread.index;
}

// Thread after thread on one stack, as long as none of them waits: a kernel without barriers never switches.
[[noreturn]] void fiber_main();

// Has another thread run until `self` can go on.
__attribute__((always_inline)) inline void give_way(Thread& self, unsigned position) {
    Thread* next = runnable(position);
    if (next == nullptr) {
        fail_stuck();
    }
    bool fresh = next->state == State::unstarted;
    make_current(*next);
    if (fresh) {
        next->stack = runtime.stacks.take();
        runtime.stacks.enter(next->context, next->stack, fiber_main);
    }
    if (next != &self) {
        switch_context(self.context, next->context);
    }
}

inline void open_barrier() {
    for (unsigned i = 0; i < runtime.count; ++i) {
        State& state = runtime.threads[i].state;
        state = state == State::at_barrier ? State::ready : state;
    }
    runtime.ayes_then = runtime.ayes;
    runtime.waiting_then = runtime.waiting;
    runtime.ayes = runtime.waiting = 0;
}

__attribute__((noinline, cold)) inline void check_line(const Thread& self, int line) {
    for (unsigned i = 0; i < runtime.count; ++i) {
        const Thread& other = runtime.threads[i];
        if (other.state == State::at_barrier && other.line != line) {
            fail("barrier divergence: thread %u waits at line %d and thread %u at line %d", other.number, other.line,
                 self.number, line);
        }
    }
}

// __syncthreads, with a vote. As on the device, threads that have ended are not waited for.
__attribute__((always_inline)) inline void meet_block(int line, bool aye) {
    Thread& self = *runtime.current;
    self.state = State::at_barrier;
    self.line = line;
    runtime.ayes += aye;
    if (++runtime.waiting < runtime.alive) {
        give_way(self, position_of(self) + 1);
    } else {
        check_line(self, line);
        open_barrier();
        give_way(self, 0);
    }
}

// Whether all the lanes have come to the same call; if so, each has its result and may run.
inline bool open_warp(unsigned warp_number, unsigned lanes, int line) {
    Warp& warp = runtime.warps[warp_number];
    unsigned awaited = lanes & warp.present;
    if (awaited & ~warp.waiting) {
        return false;
    }
    unsigned long long values[warp_size], ballot = 0;
    unsigned base = warp_number * warp_size;
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (awaited >> lane & 1) {
            const Thread& thread = thread_numbered(base + lane);
            if (thread.lanes != lanes || thread.line != line) {
                return false;  // it waits elsewhere, perhaps for others that will still come
            }
            values[lane] = thread.value;
            ballot |= static_cast<unsigned long long>(thread.value != 0) << lane;
        }
    }
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (awaited >> lane & 1) {
            Thread& thread = thread_numbered(base + lane);
            bool there = thread.source < warp_size && awaited >> thread.source & 1;
            thread.value = thread.source == vote ? ballot : there ? values[thread.source] : ~0ull;  // ~0: NaN
            thread.state = State::ready;
        }
    }
    warp.waiting &= ~awaited;
    return true;
}

// The value of lane `source`, or the ballot of all non-zero values.
inline unsigned long long meet_warp(int line, unsigned lanes, unsigned long long value, unsigned source) {
    Thread& self = *runtime.current;
    unsigned lane = self.number % warp_size, warp = self.number / warp_size;
    if (!(lanes >> lane & 1)) {
        fail("thread %u, lane %u, calls a warp function at line %d whose mask 0x%08x leaves it out", self.number, lane,
             line, lanes);
    }
    self.state = State::at_warp;
    self.line = line;
    self.lanes = lanes;
    self.source = source;
    self.value = value;
    runtime.warps[warp].waiting |= 1u << lane;
    bool open = open_warp(warp, lanes, line);
    give_way(self, open ? first_position(warp) : position_of(self) + 1);
    return self.value;
}

// Takes a thread that has ended out of the block; whom it kept waiting may run. The thread to go on with, or null.
inline Thread* end_thread(Thread& self) {
    unsigned warp_number = self.number / warp_size, lane = self.number % warp_size;
    Warp& warp = runtime.warps[warp_number];
    self.state = State::done;
    warp.present &= ~(1u << lane);
    if (--runtime.alive == 0) {
        return nullptr;
    }
    if (runtime.waiting && runtime.waiting == runtime.alive) {
        open_barrier();
        return runnable(0);
    }
    for (unsigned other = 0; warp.waiting && other < warp_size; ++other) {
        if (warp.waiting >> other & 1) {
            const Thread& thread = thread_numbered(warp_number * warp_size + other);
            open_warp(warp_number, thread.lanes, thread.line);
        }
    }
    Thread* next = runnable(position_of(self) + 1);
    if (next == nullptr) {
        fail_stuck();
    }
    return next;
}

void fiber_main() {
    for (;;) {
        runtime.body();
        Thread& self = *runtime.current;
        Thread* next = end_thread(self);
        if (next == nullptr) {
            leave(self);
        }
        bool fresh = next->state == State::unstarted;
        make_current(*next);
        if (fresh) {
            next->stack = self.stack;
        } else {
            runtime.stacks.release(self.stack);
            switch_context(self.context, next->context);
        }
    }
}

inline void line_up(dim3 size) {
    runtime.count = runtime.alive = size.x * size.y * size.z;
    runtime.waiting = runtime.ayes = 0;
    for (unsigned number = 0; number < runtime.count; ++number) {
        Thread& thread = thread_numbered(number);
        thread.number = number;
        thread.index = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
        thread.state = State::unstarted;
    }
    for (unsigned warp = 0; warp * warp_size < runtime.count; ++warp) {
        unsigned lanes = runtime.count - warp * warp_size;
        runtime.warps[warp] = {lanes < warp_size ? (1u << lanes) - 1 : ~0u, 0};
    }
}

// Runs every thread of the current block to its end. False where one failed; the reason is in `runtime`.
inline bool run_block() {
    line_up(runtime.block_size);
    runtime.stacks.clear();
    runtime.failed = false;
    Thread& first = runtime.threads[0];
    make_current(first);
    first.stack = runtime.stacks.take();
    runtime.stacks.enter(first.context, first.stack, fiber_main);
    switch_context(runtime.main, first.context);
    return !runtime.failed;
}

}  // namespace evo

static const uint3& threadIdx = evo::runtime.thread_index;
static const uint3& blockIdx = evo::runtime.block_index;
static const dim3& blockDim = evo::runtime.block_size;
static const dim3& gridDim = evo::runtime.grid_size;
constexpr int warpSize = 32;

}  // namespace
