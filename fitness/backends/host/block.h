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

// Lets those who wait at the barrier go on. They must have come to the same one.
inline void open_barrier() {
    const Thread* first = nullptr;
    for (unsigned i = 0; i < runtime.count; ++i) {
        Thread& thread = runtime.threads[i];
        if (thread.state != State::at_barrier) {
            continue;
        }
        first = first == nullptr ? &thread : first;
        if (thread.line != first->line) {
            fail("barrier divergence: thread %u waits at line %d and thread %u at line %d", first->number, first->line,
                 thread.number, thread.line);
        }
        thread.state = State::ready;
    }
    runtime.ayes_then = runtime.ayes;
    runtime.waiting_then = runtime.waiting;
    runtime.ayes = runtime.waiting = 0;
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
        open_barrier();
        give_way(self, 0);
    }
}

}  // namespace evo

static const uint3& threadIdx = evo::runtime.thread_index;
static const uint3& blockIdx = evo::runtime.block_index;
static const dim3& blockDim = evo::runtime.block_size;
static const dim3& gridDim = evo::runtime.grid_size;
constexpr int warpSize = 32;

}  // namespace
