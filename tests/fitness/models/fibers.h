// Blocks of 512 fibers that stand for threads, in an order drawn from a seed, and the asynchronous work beside them.
// The state of the machine lies here, its instructions in tcgen05.h.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <map>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __align__(...)

namespace {
namespace evo {
template <class To, class From>
To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace evo
}  // namespace
#include "vector_types.h"

#include "small_floats.h"

namespace {

struct Index { unsigned x, y, z; };
struct Load { float* to; uint32_t from; std::vector<float> early; };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 17);
    std::function<bool()> ready;  // none: ready
    bool done = false;
    unsigned x = 0;
    bool dawdles = false;  // until nobody else can go on
    std::vector<Load> loads;
    std::vector<std::function<void()>> stores, copies;  // not yet done: to tensor memory, to global memory
};
struct Barrier { int arrivals, pending, phase; long bytes; };
struct Work {  // asynchronous: may be done once `may` holds
    std::function<void()> act;
    bool product;     // products and commits, in the order of their issue
    uint32_t d;       // of a product: its accumulator
    bool commit;
};
struct Meeting { unsigned arrived = 0, generation = 0; bool any = false, result = false; };

constexpr unsigned THREADS = 512;
unsigned char arena[1 << 18] __attribute__((aligned(1024)));
constexpr unsigned ARENA_START = 512;  // where dynamic shared memory begins: not where a tile may
unsigned char* const dynamic = arena + ARENA_START;
float tensor_memory[128][512];
bool allocated;
std::vector<Fiber> fibers;
Fiber* current;
ucontext_t scheduler;
Index blockIdx, gridDim;
#define threadIdx (*current)
std::map<const void*, Barrier> barriers;
std::vector<Work> under_way;
std::map<unsigned, Meeting> meetings;
std::mt19937 chance;
int fault = -1;  // that a test has planted
int laziness;    // of asynchronous work, 0 to 2: as soon as can be, at random, as late as can be

[[noreturn]] void fail(const char* what) {
    const unsigned thread = current ? current->x : 0;
    fprintf(stderr, "block %u %u %u, thread %u: %s\n", blockIdx.x, blockIdx.y, blockIdx.z, thread, what);
    exit(1);
}
void require(bool holds, const char* what) { if (!holds) fail(what); }
bool late() { return laziness == 2 || (laziness == 1 && chance() % 2); }

void wait_until(std::function<bool()> ready) {
    current->ready = std::move(ready);
    swapcontext(&current->context, &scheduler);
}

// An arrival may be seen long before the thread that arrived goes on.
void dawdle() {
    if (laziness == 0 || chance() % 64) return;
    current->dawdles = true;
    wait_until([] { return true; });
}

bool meet(unsigned place, unsigned threads, bool flag = false) {
    Meeting& meeting = meetings[place];
    const unsigned generation = meeting.generation;
    meeting.any |= flag;
    if (++meeting.arrived == threads) {
        meeting = {0, generation + 1, false, meeting.any};
    } else {
        wait_until([&meeting, generation] { return meeting.generation != generation; });
    }
    return meeting.result;
}
void __syncthreads() { meet(0, THREADS); }
void meet_warpgroup() { meet(1, 128); }
bool __any_sync(unsigned, bool flag) { return meet(16 + current->x / 32, 32, flag); }
void __syncwarp() { meet(16 + current->x / 32, 32); }
unsigned __shfl_sync(unsigned, unsigned uniform, int) { return uniform; }

int min(int a, int b) { return a < b ? a : b; }
int max(int a, int b) { return a > b ? a : b; }
float __int_as_float(int x) { return evo::bit_cast<float>(x); }
int __float_as_int(float x) { return evo::bit_cast<int>(x); }
uint32_t __float_as_uint(float x) { return evo::bit_cast<uint32_t>(x); }
float power_of_two(float x) { return exp2f(x); }

// ---------------------------------------------------------------------------------------------------------- scheduler

// A commit waits for all products before it; a product for those before it into the same accumulator.
bool may_act(size_t number) {
    const Work& work = under_way[number];
    for (size_t i = 0; i < number && work.product; ++i) {
        const Work& before = under_way[i];
        if (before.product && !before.commit && (work.commit || before.d == work.d)) return false;
    }
    return true;
}
bool act() {
    const size_t count = under_way.size(), first = count ? chance() % count : 0;
    for (size_t i = 0; i < count; ++i) {
        const size_t number = (first + i) % count;
        if (!may_act(number)) continue;
        const auto action = under_way[number].act;
        under_way.erase(under_way.begin() + number);
        action();
        return true;
    }
    return false;
}
bool step(bool wake = false) {
    const unsigned first = chance() % THREADS;
    for (unsigned i = 0; i < THREADS; ++i) {
        Fiber& fiber = fibers[(first + i) % THREADS];
        if (fiber.done || fiber.dawdles > wake || (fiber.ready && !fiber.ready())) continue;
        fiber.ready = nullptr;
        fiber.dawdles = false;
        current = &fiber;
        swapcontext(&scheduler, &fiber.context);
        return true;
    }
    return false;
}

std::function<void()> body;
void enter() {
    body();
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

void run_block() {
    memset(arena, 0xff, sizeof arena);
    memset(tensor_memory, 0xff, sizeof tensor_memory);
    barriers.clear();
    meetings.clear();
    fibers = std::vector<Fiber>(THREADS);
    for (unsigned x = 0; x < THREADS; ++x) {
        Fiber& fiber = fibers[x];
        getcontext(&fiber.context);
        fiber.x = x;
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        makecontext(&fiber.context, enter, 0);
    }
    for (;;) {
        if (laziness < 2 && chance() % 2 && act()) continue;
        if (step() || (laziness < 2 && act()) || step(true) || act()) continue;
        break;
    }
    for (const Fiber& fiber : fibers) {
        current = const_cast<Fiber*>(&fiber);
        require(fiber.done, "waits for ever");
        require(fiber.loads.empty() && fiber.stores.empty() && fiber.copies.empty(), "ends with work under way");
    }
    require(under_way.empty() && !allocated, "the block ends with work under way, or keeps tensor memory");
}

}  // namespace
